"""Client side of SASL authentication, without I/O: PLAIN (RFC 4616), SCRAM (RFC 5802, scramp), OAUTHBEARER (RFC 7628).

Sources: KIP-43 and KIP-152 (SaslHandshake, SaslAuthenticate), KIP-255 (OAUTHBEARER), KIP-368 (session lifetime).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.messages import RequestMessage
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, error_name

HANDSHAKE_VERSION = 1
"""Tokens are sent in SaslAuthenticate, in version 0 as raw bytes (KIP-152)."""

Query = tuple[ApiKey, int | None, RequestMessage[Any]]
"""Next request. Its version is None for the highest common one."""

SEPARATOR = "\x01"
"""Terminator of a pair in OAUTHBEARER messages."""
NO_SASL_ADVICE = "use the port of its SASL listener, or leave the credentials out"


class LoginFailed(ProxyError):
    """The broker refuses the login, or its own tokens are invalid."""


def authentication(
    mechanism: str, username: str, password: Callable[[], str], *, is_required: bool = False
) -> Generator[Query, Any, int]:
    """Yield requests (KIP-368). The caller sends each response into the generator.

    Args:
        mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.
        username: of the principal; brokers refuse another one on an authenticated connection. With OAUTHBEARER:
            extensions (see oauth_token).
        password: reads it, once, when it is needed. With OAUTHBEARER: the token.
        is_required: raise on a listener without SASL, where the credentials would not be used.

    Returns: lifetime of the session in milliseconds; 0 if unlimited or if the broker requires no login.

    Raises LoginFailed, and any exception of `password`.
    """
    handshake = yield ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, messages.SaslHandshakeRequest(mechanism=mechanism)
    if (refusal := handshake_refusal(handshake, mechanism)) is not None:
        raise LoginFailed(refusal)
    if not wants_login(handshake):
        if is_required:
            raise LoginFailed("has no SASL at this port, and the credentials would not be used: " + NO_SASL_ADVICE)
        return 0
    tokens = login(mechanism, username, password())
    lifetime_ms, received = 0, None
    while True:
        try:
            token = next(tokens) if received is None else tokens.send(received)
        except StopIteration:
            return lifetime_ms
        response = yield ApiKey.SASL_AUTHENTICATE, None, messages.SaslAuthenticateRequest(auth_bytes=token)
        if response.error_code != ErrorCode.NONE:
            who = "the token" if mechanism == "OAUTHBEARER" else repr(username)
            raise LoginFailed(f"refuses {who}: {response.error_message or error_name(response.error_code)}")
        received, lifetime_ms = bytes(response.auth_bytes or b""), response.session_lifetime_ms


def handshake_refusal(response: messages.SaslHandshakeResponse, mechanism: str) -> str | None:
    """Return the broker's reason. None if it accepts the mechanism or requires no login."""
    if response.error_code in (ErrorCode.NONE, ErrorCode.ILLEGAL_SASL_STATE):
        return None
    if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        return f"does not support {mechanism}; it offers {', '.join(response.mechanisms or ()) or 'none'}"
    return f"responded with {error_name(response.error_code)}"


def wants_login(response: messages.SaslHandshakeResponse) -> bool:
    """Return False on a listener without SASL, where every client is ANONYMOUS."""
    return response.error_code != ErrorCode.ILLEGAL_SASL_STATE


def oauth_token(token: str, extensions: str = "") -> bytes:
    """Return the first message (RFC 7628, KIP-255, KIP-342).

    `extensions` are `key=value` pairs with SEPARATOR between them.
    """
    pairs = f"{SEPARATOR}{extensions}" if extensions else ""
    return f"n,,{SEPARATOR}auth=Bearer {token}{pairs}{SEPARATOR}{SEPARATOR}".encode()


def login(mechanism: str, username: str, password: str) -> Generator[bytes, bytes, None]:
    """Yield tokens for SaslAuthenticate. The caller sends the server's into the generator.

    Raises LoginFailed if the server does not know the password, or its messages are invalid.
    """
    if mechanism == "OAUTHBEARER":
        refusal = yield oauth_token(password, username)
        if refusal:
            yield SEPARATOR.encode()  # the broker refuses the token in its response to this
            raise LoginFailed(f"refuses the token: {refusal.decode(errors='replace')}")
        return
    if mechanism == "PLAIN":  # authorization id (empty), authentication id, password
        yield "\0".join(("", username, password)).encode()
        return
    from scramp import ScramClient, ScramException

    client = ScramClient([mechanism], username, password)
    try:
        client.set_server_first((yield client.get_client_first().encode()).decode())
        client.set_server_final((yield client.get_client_final().encode()).decode())
    except (ScramException, UnicodeDecodeError) as error:
        raise LoginFailed(f"sends invalid SCRAM messages: {error}") from None
