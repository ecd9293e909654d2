"""Effects of faults on the bytes of a response."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.target import fault_effects
from kafka_share_proxy.conformance.target.fault_effects import Outgoing
from kafka_share_proxy.conformance.target.faults import Fault
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

FRAME = b"0123456789"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault(delay_ms=5), Outgoing(FRAME)),
        (Fault(cut_after=3), Outgoing(b"012", closes=True)),
        (Fault(cut_after=0), Outgoing(b"", closes=True)),
        (Fault(half_frame=True), Outgoing(b"01234", closes=True)),
        (Fault(lose=True), Outgoing(b"")),
        (Fault(duplicate=True), Outgoing(FRAME + FRAME)),
    ],
)
def test_bytes_are_cut_lost_or_doubled(fault: Fault, expected: Outgoing) -> None:
    assert fault_effects.outgoing([fault], FRAME) == expected


def test_a_correlation_id_stays_within_an_int32() -> None:
    assert fault_effects.shifted([], 7) == 7
    assert fault_effects.shifted([Fault(correlation_id_shift=1)], 7) == 8
    assert fault_effects.shifted([Fault(correlation_id_shift=1)], 2**31 - 1) == -(2**31)


def test_delays_add_up() -> None:
    assert fault_effects.delay_s([Fault(delay_ms=500), Fault(delay_ms=250)]) == 0.75


def test_an_error_replaces_the_execution_unless_it_is_executed() -> None:
    request = messages.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    code = ErrorCode.NOT_COORDINATOR
    replaced = fault_effects.replacement([Fault(error=code)], ApiKey.HEARTBEAT, 4, request)
    assert replaced == messages.HeartbeatResponse(error_code=code)
    executed = Fault(error=code, execute=True)
    assert fault_effects.replacement([executed], ApiKey.HEARTBEAT, 4, request) is None
    response = messages.HeartbeatResponse()
    fault_effects.amend([executed, Fault(throttle_ms=70)], 4, response)
    assert response == messages.HeartbeatResponse(error_code=code, throttle_time_ms=70)
