"""Handlers of share requests between two looks at the gate, and what each API answers while it is closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proxy.apis.exchange import reply
from proxy.apis.ports import Call
from proxy.apis.services import Services
from proxy.apis.share_gate import HOLD_MAX_S
from proxy.apis.share_state import state_partition
from proxy.apis.waiting import first_until
from proxy.cluster.routes import Handler
from proxy.errors import ErrorCode
from proxy.wire import registry

HEARTBEAT, DESCRIBE, FETCH, ACKNOWLEDGE, DESCRIBE_OFFSETS, ALTER_OFFSETS, DELETE_OFFSETS = 76, 77, 78, 79, 90, 91, 92

Refuse = Callable[[Call, ErrorCode, str], Any]
"""The answer of an API that is not served now."""


def gated(key: int, handler: Handler) -> Handler:
    """The handler, let in and out by the gate."""
    refuse = _REFUSALS[key]

    async def handle(call: Call, services: Services) -> bytes | None:
        gate = services.gate
        if not gate.is_open:
            await _hold(services)
        if not gate.is_open or _is_refused(call, services):
            return reply(call, refuse(call, gate.refusal, gate.reason))
        before = gate.times_closed
        answer = await handler(call, services)
        if not gate.is_open or gate.times_closed != before:
            return reply(call, refuse(call, gate.refusal, gate.reason))
        return answer

    return handle


async def _hold(services: Services) -> None:
    gate = services.gate
    opened = gate.wait()
    try:
        await first_until(services.timers, services.timers.now() + HOLD_MAX_S, opened)
    finally:
        gate.forget(opened)


def _is_refused(call: Call, services: Services) -> bool:
    """Whether what is stored about this group cannot be read here."""
    if not services.gate.refused:
        return False
    message = call.message
    ids = getattr(message, "group_ids", None) or [
        *(group.group_id for group in getattr(message, "groups", None) or ()),
        *filter(None, [getattr(message, "group_id", None)]),
    ]
    return any(state_partition(group_id) in services.gate.refused for group_id in ids)


def _whole(call: Call, code: ErrorCode, reason: str) -> Any:
    return registry.message(f"{registry.API_KEYS[call.key]}Response")(error_code=code, error_message=reason or None)


def _session(call: Call, _code: ErrorCode, reason: str) -> Any:
    return _whole(call, ErrorCode.SHARE_SESSION_NOT_FOUND, reason)


def _described(call: Call, code: ErrorCode, reason: str) -> Any:
    answer = registry.message("ShareGroupDescribeResponse")
    groups = [
        answer.DescribedGroup(group_id=group_id, error_code=code, error_message=reason or None, members=[])
        for group_id in dict.fromkeys(call.message.group_ids)
    ]
    return answer(groups=groups)


def _described_offsets(call: Call, code: ErrorCode, reason: str) -> Any:
    answer = registry.message("DescribeShareGroupOffsetsResponse")
    entry = answer.DescribeShareGroupOffsetsResponseGroup
    groups = [
        entry(group_id=group.group_id, topics=[], error_code=code, error_message=reason or None)
        for group in call.message.groups
    ]
    return answer(groups=groups)


_REFUSALS: dict[int, Refuse] = {
    HEARTBEAT: _whole,
    DESCRIBE: _described,
    FETCH: _session,
    ACKNOWLEDGE: _session,
    DESCRIBE_OFFSETS: _described_offsets,
    ALTER_OFFSETS: _whole,
    DELETE_OFFSETS: _whole,
}
