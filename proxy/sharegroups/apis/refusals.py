"""What several APIs say while the state they need is away: `DeclaredApi.away`."""

from __future__ import annotations

from typing import Any

from proxy.forwarding.interfaces import Call
from proxy.wire import registry
from proxy.wire.errors import ErrorCode


async def whole(call: Call, code: ErrorCode, reason: str) -> Any:
    """A response with one code for all of the request."""
    return registry.message(f"{registry.API_KEYS[call.key]}Response")(error_code=code, error_message=reason or None)


async def no_session(call: Call, _code: ErrorCode, reason: str) -> Any:
    """Of a share session: the member opens a new one, wherever the group is served by then."""
    return await whole(call, ErrorCode.SHARE_SESSION_NOT_FOUND, reason)
