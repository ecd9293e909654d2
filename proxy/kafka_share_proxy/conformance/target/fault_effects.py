"""Effects of faults on one response: its codes, its bytes and the connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_share_proxy.conformance.target import error_responses
from kafka_share_proxy.conformance.target.faults import Fault
from kafka_share_proxy.wire.definitions.messages import Message


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Bytes to send for one request."""

    data: bytes
    closes: bool = False
    """True if the connection is closed after them."""


def replacement(faults: Sequence[Fault], key: int, version: int, request: Message) -> Message | None:
    """Return the error response that replaces the execution of the request, or None if it is executed."""
    for fault in faults:
        if fault.error is not None and not fault.execute:
            response = error_responses.build(key, version, request, fault.error, fault.at)
            if response is not None:
                return response
    return None


def amend(faults: Sequence[Fault], version: int, response: Message) -> None:
    """Set the error codes and the throttle time of the faults in a response."""
    for fault in faults:
        if fault.error is not None:
            error_responses.overwrite(response, version, fault.error, fault.at)
        if fault.throttle_ms is not None and "throttle_time_ms" in response.FIELDS:
            response.throttle_time_ms = fault.throttle_ms  # type: ignore[attr-defined]


def delay_s(faults: Sequence[Fault]) -> float:
    """Return the seconds to wait before the response."""
    return sum(fault.delay_ms for fault in faults) / 1000


def shifted(faults: Sequence[Fault], correlation_id: int) -> int:
    """Return the correlation id to send, within an int32."""
    number = correlation_id + sum(fault.correlation_id_shift for fault in faults)
    return (number + 2**31) % 2**32 - 2**31


def outgoing(faults: Sequence[Fault], frame: bytes) -> Outgoing:
    """Return the bytes to send of a response frame."""
    data = frame
    for fault in faults:
        if fault.lose:
            return Outgoing(b"")
        if fault.duplicate:
            data += frame
    cuts = [len(frame) // 2 if fault.half_frame else fault.cut_after for fault in faults]
    lengths = [cut for cut in cuts if cut is not None]
    return Outgoing(data[: min(lengths)], closes=True) if lengths else Outgoing(data)
