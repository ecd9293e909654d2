"""Why a connection could not be made, in one line."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence

import trio

ADVICE = "its port may require TLS (--tls) or a login (--sasl-mechanism)"
"""Advice for a broker that closes a connection before its first response."""

_NOT_TLS = frozenset({"UNEXPECTED_EOF_WHILE_READING", "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})
"""Reasons of OpenSSL if the peer does not speak TLS."""


def dial_error(error: BaseException) -> str:
    """Return the reason of an error of trio.open_tcp_stream or of a TLS handshake."""
    while isinstance(error, trio.BrokenResourceError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, trio.TooSlowError):
        return "no response in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message} (--tls-ca)"
    if isinstance(error, ssl.SSLError):
        is_plain = error.reason in _NOT_TLS
        return f"TLS: {'its port seems to be without TLS (--no-tls)' if is_plain else error.reason or error}"
    if isinstance(error, OSError) and error.errno is None and error.__cause__ is not None:
        return "; ".join(dict.fromkeys(map(dial_error, _of_each_address(error.__cause__))))
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def _of_each_address(error: BaseException) -> Sequence[BaseException]:
    return error.exceptions if isinstance(error, BaseExceptionGroup) else (error,)
