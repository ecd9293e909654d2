"""TLS server names (SNI) that clients of one listener may request (loop/README.md rules 22 to 24)."""

from __future__ import annotations

import ssl
from collections.abc import Callable


class NamedObject(ssl.SSLObject):
    """Server side of a handshake, with the name that the client requested."""

    server_name: str | None = None
    """Requested name in small letters. None before the ClientHello, and without a name in it."""
    refusal = ""
    """Reason why the name is refused. Empty if it is known."""


class ServerNames:
    """Check of the requested names."""

    def __init__(self, is_known: Callable[[str], bool], advice: str) -> None:
        """`advice`: what a client has to do, for log lines."""
        self._is_known = is_known
        self._advice = advice

    def require(self, context: ssl.SSLContext) -> None:
        """Let the handshakes of this context fail without a known name, by the alert unrecognized_name."""
        if context.sni_callback is None:
            context.sslobject_class = NamedObject
            context.sni_callback = self._check

    def _check(self, handshake: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> int | None:
        assert isinstance(handshake, NamedObject)  # noqa: S101  # made by a context of `require`
        if name is None:
            handshake.refusal = f"no TLS server name (SNI): {self._advice}"
        elif not self._is_known(name.lower()):
            handshake.refusal = f"unknown TLS server name {name!r}: {self._advice}"
        else:
            handshake.server_name = name.lower()
            return None
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
