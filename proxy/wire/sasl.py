"""What a client says to log in with SASL, without I/O: PLAIN (RFC 4616) and SCRAM (RFC 5802, by the scramp library)."""

from __future__ import annotations

from collections.abc import Generator

from proxy.wire import messages
from proxy.wire.errors import ErrorCode, ProxyError, error_name


class LoginFailed(ProxyError):
    """The server's tokens are wrong: it does not know the password, or speaks another language."""


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
    """The client's tokens, each for one SaslAuthenticate; it is sent the server's. Raises LoginFailed."""
    if mechanism == "PLAIN":  # authorization id (empty), authentication id, password
        yield "\0".join(("", username, password)).encode()
        return
    from scramp import ScramClient, ScramException

    client = ScramClient([mechanism], username, password)
    try:
        client.set_server_first((yield client.get_client_first().encode()).decode())
        client.set_server_final((yield client.get_client_final().encode()).decode())
    except (ScramException, UnicodeDecodeError) as error:
        raise LoginFailed(str(error)) from None
