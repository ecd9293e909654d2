"""Server side of SASL for one connection, without I/O: PLAIN and SCRAM (with scramp)."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from functools import cache
from typing import Any

from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
AUTHENTICATION_BYTES_MAX = 512 << 10
"""Largest request before authentication (Kafka: sasl.server.max.receive.size)."""
REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism {}"


class CredentialsRefused(Exception):
    """The credentials are wrong. The text is for the client."""


class Authentication:
    """State of SASL on one connection. Without users, every client is anonymous."""

    def __init__(self, users: Mapping[str, str], mechanisms: tuple[str, ...] = MECHANISMS) -> None:
        self._users = users
        self._mechanisms = mechanisms
        self._mechanism = ""
        self._server: Any = None
        self.user = ""
        """User that is authenticated; empty if none."""

    @property
    def is_required(self) -> bool:
        """True if only the requests of the login are accepted."""
        return bool(self._users) and not self.user

    def handshake(self, request: messages.SaslHandshakeRequest) -> messages.SaslHandshakeResponse:
        """Choose the mechanism (KIP-43). A second handshake begins a re-authentication (KIP-368)."""
        code = ErrorCode.NONE
        if not self._users:
            code = ErrorCode.ILLEGAL_SASL_STATE
        elif request.mechanism not in self._mechanisms:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        else:
            self._mechanism, self._server = request.mechanism, None
        offered = list(self._mechanisms) if self._users else []
        return messages.SaslHandshakeResponse(error_code=code, mechanisms=offered)

    def authenticate(self, request: messages.SaslAuthenticateRequest) -> messages.SaslAuthenticateResponse:
        """Accept the client's next token (KIP-152)."""
        if not self._mechanism:
            return _refusal(ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received without SaslHandshake")
        try:
            token = self._token(bytes(request.auth_bytes))
        except CredentialsRefused as refused:
            return _refusal(ErrorCode.SASL_AUTHENTICATION_FAILED, str(refused))
        return messages.SaslAuthenticateResponse(auth_bytes=token)

    def token_response(self, received: bytes) -> bytes | None:
        """Return the server's next token for one without header (SaslHandshake v0). None if it is refused."""
        try:
            return self._token(received)
        except CredentialsRefused:
            return None

    def _token(self, received: bytes) -> bytes:
        """Return the server's next token. Raises CredentialsRefused."""
        if self._mechanism == "PLAIN":
            return self._plain(received)
        return self._scram(received)

    def _plain(self, received: bytes) -> bytes:
        parts = received.split(b"\0")
        if len(parts) != 3:
            raise CredentialsRefused("Invalid SASL/PLAIN response: expected 3 tokens, got " + str(len(parts)))
        user = parts[1].decode("utf-8", "replace")
        password = self._users.get(user)
        if password is None or not hmac.compare_digest(password.encode(), parts[2]):
            raise CredentialsRefused("Authentication failed: Invalid username or password")
        self._succeed(user)
        return b""

    def _scram(self, received: bytes) -> bytes:
        from scramp import ScramException, ScramMechanism

        try:
            if self._server is None:
                self._server = ScramMechanism(self._mechanism).make_server(self._credentials)
                self._server.set_client_first(received.decode())
                return bytes(self._server.get_server_first().encode())
            self._server.set_client_final(received.decode())
            token = bytes(self._server.get_server_final().encode())
        except (ScramException, UnicodeDecodeError, KeyError):
            raise CredentialsRefused(REFUSED.format(self._mechanism)) from None
        self._succeed(self._claimed)
        return token

    def _credentials(self, user: str) -> tuple[bytes, bytes, bytes, int]:
        self._claimed = user
        return _derived(self._mechanism, user, self._users[user])

    def _succeed(self, user: str) -> None:
        self.user, self._mechanism, self._server = user, "", None


@cache
def _derived(mechanism: str, user: str, password: str) -> tuple[bytes, bytes, bytes, int]:
    """Return salt, stored key, server key and iterations. The salt is derived from the user, so that runs repeat."""
    from scramp import ScramMechanism

    salt = f"salt of {user}".encode()
    derived: tuple[bytes, bytes, bytes, int] = ScramMechanism(mechanism).make_auth_info(password, salt=salt)
    return derived


def _refusal(code: ErrorCode, text: str) -> messages.SaslAuthenticateResponse:
    return messages.SaslAuthenticateResponse(error_code=code, error_message=text)
