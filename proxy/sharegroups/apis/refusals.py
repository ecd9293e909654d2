"""What several APIs say while the state they need is away: `DeclaredApi.away`."""

from __future__ import annotations

from proxy.forwarding.interfaces import Call
from proxy.wire import registry
from proxy.wire.errors import ErrorCode
from proxy.wire.messages import Message


async def whole(call: Call[Message], code: ErrorCode, reason: str) -> Message:
    """A response with one code for all of the request."""
    response = registry.message(f"{registry.API_KEYS[call.key]}Response")
    refusal: Message = response(error_code=code, error_message=reason or None)
    return refusal


async def no_session(call: Call[Message], _code: ErrorCode, reason: str) -> Message:
    """Of a share session: the member opens a new one, wherever the group is served by then."""
    return await whole(call, ErrorCode.SHARE_SESSION_NOT_FOUND, reason)
