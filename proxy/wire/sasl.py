"""What a client says to log in with SASL, without I/O: PLAIN (RFC 4616) and SCRAM (RFC 5802, by the scramp library).

Sources: KIP-43 and KIP-152 (SaslHandshake, SaslAuthenticate), KIP-368 (how long a session lives).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode, ProxyError, error_name
from proxy.wire.messages import RequestMessage

HANDSHAKE_VERSION = 1
"""Tokens come in SaslAuthenticate; before, they stood bare on the connection (KIP-152)."""

Question = tuple[ApiKey, RequestMessage[Any]]
"""What is asked next; SaslHandshake in `HANDSHAKE_VERSION`."""


class LoginFailed(ProxyError):
    """The broker refuses the login, or its own tokens are wrong; the text goes behind the name of the broker."""


def authentication(mechanism: str, username: str, password: Callable[[], str]) -> Generator[Question, Any, int]:
    """All that is asked to log in, for the first time or anew (KIP-368); it is sent each answer.

    Args:
        mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        username: of the principal; brokers refuse another one on a connection that has logged in.
        password: reads it, once, when it is needed.

    Returns: how long the session lives, in milliseconds; 0: for ever, or the broker wants no login.

    Raises LoginFailed, and whatever `password` raises.
    """
    handshake = yield ApiKey.SASL_HANDSHAKE, messages.SaslHandshakeRequest(mechanism=mechanism)
    if (refusal := handshake_refusal(handshake, mechanism)) is not None:
        raise LoginFailed(refusal)
    if not wants_login(handshake):
        return 0
    tokens = login(mechanism, username, password())
    lifetime_ms, received = 0, None
    while True:
        try:
            token = next(tokens) if received is None else tokens.send(received)
        except StopIteration:
            return lifetime_ms
        answer = yield ApiKey.SASL_AUTHENTICATE, messages.SaslAuthenticateRequest(auth_bytes=token)
        if answer.error_code != ErrorCode.NONE:
            raise LoginFailed(f"refuses {username!r}: {answer.error_message or error_name(answer.error_code)}")
        received, lifetime_ms = bytes(answer.auth_bytes or b""), answer.session_lifetime_ms


def handshake_refusal(answer: messages.SaslHandshakeResponse, mechanism: str) -> str | None:
    """Why a broker does not let one log in with a mechanism; None where it does, or wants no login at all."""
    if answer.error_code in (ErrorCode.NONE, ErrorCode.ILLEGAL_SASL_STATE):
        return None
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        return f"does not take {mechanism}; it offers {', '.join(answer.mechanisms or ()) or 'none'}"
    return f"answered {error_name(answer.error_code)}"


def wants_login(answer: messages.SaslHandshakeResponse) -> bool:
    """Whether SaslAuthenticate is to follow; on a listener without SASL everybody is ANONYMOUS."""
    return answer.error_code != ErrorCode.ILLEGAL_SASL_STATE


def login(mechanism: str, username: str, password: str) -> Generator[bytes, bytes, None]:
    """The client's tokens, each for one SaslAuthenticate; it is sent the server's.

    LoginFailed: the server does not know the password, or speaks another language.
    """
    if mechanism == "PLAIN":  # authorization id (empty), authentication id, password
        yield "\0".join(("", username, password)).encode()
        return
    from scramp import ScramClient, ScramException

    client = ScramClient([mechanism], username, password)
    try:
        client.set_server_first((yield client.get_client_first().encode()).decode())
        client.set_server_final((yield client.get_client_final().encode()).decode())
    except (ScramException, UnicodeDecodeError) as error:
        raise LoginFailed(f"answers the login with what is none: {error}") from None
