"""Responses of several APIs while the state they need is unavailable: `DeclaredApi.respond_unavailable`."""

from __future__ import annotations

from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode


async def whole(call: Call[Message], code: ErrorCode, reason: str) -> Message:
    """Return a response with one error code for the whole request."""
    response = registry.message(f"{registry.API_KEYS[call.key]}Response")
    refusal: Message = response(error_code=code, error_message=reason or None)
    return refusal


async def no_session(call: Call[Message], _code: ErrorCode, reason: str) -> Message:
    """Return SHARE_SESSION_NOT_FOUND. The member then opens a new session where the group is served by then."""
    return await whole(call, ErrorCode.SHARE_SESSION_NOT_FOUND, reason)
