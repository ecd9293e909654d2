"""Looking for the coordinator."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.consumer.events import BackgroundError
from kafka_share_proxy.consumer.groups.coordinator_requests import CoordinatorRequests
from kafka_share_proxy.consumer.groups.states import coordinator_trace
from kafka_share_proxy.consumer.requests import FailureKind, RequestFailure
from kafka_share_proxy.wire.errors import ErrorCode

from tests.consumer.managers import BARRED, LOST, NOW, TIMED_OUT, backoff, found_coordinator, nothing, only, respond


def looking() -> CoordinatorRequests:
    made = CoordinatorRequests("g", coordinator_trace(), backoff(), 30.0)
    made.start(NOW)
    assert nothing(made), "nobody has needed it"
    assert made.need(NOW, "a commit") is None
    return made


def test_it_is_requested_once_and_then_known() -> None:
    made = looking()
    request = only(made)
    assert request.message.coordinator_keys == ["g"]
    nothing(made)
    assert respond(made, request, coordinators=[{"key": "g", "node_id": 7, "host": "h", "port": 9}]) == []
    assert (made.need(NOW, "more"), made.address) == (7, ("h", 9))
    nothing(made)


@pytest.mark.parametrize("trouble", [
    LOST, TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
])  # fmt: skip
def test_after_trouble_it_is_queried_again_after_a_pause(trouble: Any) -> None:
    made = looking()
    now = NOW
    for pause in (0.1, 0.2, 0.4):
        request = only(made, now)
        if isinstance(trouble, RequestFailure):
            assert made.on_response(request, trouble, now) == []
        else:
            respond(made, request, now, coordinators=[{"key": "g", "error_code": trouble, "host": "", "node_id": -1}])
        assert nothing(made, now) == pytest.approx(now + pause)
        now += pause
    only(made, now)


def test_a_permanent_error_is_raised_and_retried_only_on_demand() -> None:
    for trouble in (BARRED, ErrorCode.GROUP_AUTHORIZATION_FAILED):
        made = looking()
        request = only(made)
        if isinstance(trouble, RequestFailure):
            (event,) = made.on_response(request, trouble, NOW)
        else:
            (event,) = respond(made, request, coordinators=[{"key": "g", "error_code": trouble, "host": ""}])
        assert isinstance(event, BackgroundError)
        assert made.failed is event.error
        nothing(made, NOW + 100)
        made.retry()
        only(made, NOW + 100)


def test_a_lost_coordinator_is_looked_up_again() -> None:
    for reason in (LOST, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        made = found_coordinator()
        made.note(reason, NOW)
        assert made.node_id is None
        only(made)
    made = found_coordinator()
    made.note(ErrorCode.ILLEGAL_GENERATION, NOW)
    assert made.node_id == 1


def test_a_response_after_the_end_is_ignored() -> None:
    made = looking()
    request = only(made)
    made.stop(NOW)
    assert made.on_response(request, RequestFailure(FailureKind.AUTHENTICATION), NOW) == []
    made.stop(NOW)
    assert made.need(NOW, "late") is None
    nothing(made)
