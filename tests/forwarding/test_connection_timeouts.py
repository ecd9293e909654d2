"""When the time of a connection is up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka_share_proxy.forwarding.connection_state import ClientState, Progress
from kafka_share_proxy.forwarding.connection_timeouts import Timeouts
from kafka_share_proxy.forwarding.limits import Limits

LIMITS = Limits(stalled_client_s=3.0, gathering_s=10.0, idle_client_s=60.0)


def connection(state: ClientState = ClientState.PASSING, **requests: Any) -> Any:
    """One of which only what is timed is there."""
    stream = {"quiet_s": 0, "gathering": None, "gathering_since": 0.0} | requests
    return SimpleNamespace(
        state=Progress(state),
        client=SimpleNamespace(progress=0),
        requests=SimpleNamespace(**stream),
        responses=SimpleNamespace(bytes=0),
        in_flight=0,
    )


def test_a_client_that_reads_nothing_of_a_local_response_is_ended() -> None:
    """Counted in looks in a row; each byte that it takes begins anew, and only a response of the proxy's counts."""
    timeouts, responding = Timeouts(LIMITS, 0.0, 1), connection(ClientState.RESPONDING)
    assert [timeouts.overdue(responding, 0.0) for _ in range(3)] == [None] * 3
    responding.client.progress += 1
    assert [timeouts.overdue(responding, 0.0) for _ in range(4)] == [None] * 4
    assert timeouts.overdue(responding, 0.0) == ("client-stalled", "accepted no byte for 3 s")
    passing = Timeouts(LIMITS, 0.0, 1)
    assert [passing.overdue(connection(), 0.0) for _ in range(10)] == [None] * 10


def test_a_request_has_to_come_whole_in_time() -> None:
    gathering = connection(ClientState.GATHERING, gathering=object(), gathering_since=5.0)
    assert Timeouts(LIMITS, 0.0, 1).overdue(gathering, 15.0) is None
    overdue = ("request-refused", "a request was still incomplete after limits.gathering_s (10)")
    assert Timeouts(LIMITS, 0.0, 1).overdue(gathering, 15.1) == overdue


@pytest.mark.parametrize(("quiet_s", "in_flight", "ends"), [(60, 0, False), (61, 0, True), (61, 1, False)])
def test_an_idle_client_is_ended_unless_a_response_is_pending(quiet_s: int, in_flight: int, ends: bool) -> None:
    idle = connection(quiet_s=quiet_s)
    idle.in_flight = in_flight
    assert Timeouts(LIMITS, 0.0, 1).overdue(idle, 0.0) == (("connection-closed", "client idle") if ends else None)


def test_connections_of_the_same_moment_grow_old_within_a_tenth_of_the_age_around_it() -> None:
    limits = Limits(connection_age_s=100.0)
    ages = [
        next(age for age in range(80, 130) if Timeouts(limits, 7.0, number).is_old(7.0 + age)) for number in range(200)
    ]
    assert (min(ages), max(ages)) == (90, 110)
    assert all(8 <= sum(1 for age in ages if age == each) <= 12 for each in range(91, 110))


def test_without_the_limit_no_connection_is_old() -> None:
    timeouts, limits = Timeouts(LIMITS, 0.0, 1), Limits()
    assert not timeouts.is_old(1e9)
    live = Timeouts(limits, 0.0, 1)
    limits.take(Limits(connection_age_s=5.0), ["connection_age_s"])
    assert live.is_old(6.0)


def test_seconds_without_a_byte_of_a_response_are_counted_while_a_request_waits() -> None:
    timeouts, waiting = Timeouts(LIMITS, 0.0, 1), connection()
    waiting.in_flight = 1
    for _ in range(3):
        timeouts.overdue(waiting, 0.0)
    assert timeouts.waits_s == 3
    waiting.responses.bytes = 10
    timeouts.overdue(waiting, 0.0)
    assert timeouts.waits_s == 0
    waiting.in_flight = 0
    timeouts.overdue(waiting, 0.0)
    assert timeouts.waits_s == 0
