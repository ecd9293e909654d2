"""Looking for the coordinator."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.consumer.events import BackgroundError
from kafka_share_proxy.consumer.groups.coordinator_requests import CoordinatorRequests
from kafka_share_proxy.consumer.groups.states import coordinator_trace
from kafka_share_proxy.consumer.requests import FailureKind, RequestFailure
from kafka_share_proxy.wire.errors import ErrorCode

from tests.consumer.managers import (
    BARRED,
    LOST,
    NOW,
    TIMED_OUT,
    backoff,
    found_coordinator,
    no_request,
    only_request,
    respond,
)


def looking() -> CoordinatorRequests:
    manager = CoordinatorRequests("g", coordinator_trace(), backoff(), 30.0)
    manager.start(NOW)
    assert no_request(manager), "nobody has needed it"
    assert manager.find(NOW, "a commit") is None
    return manager


def test_the_coordinator_is_requested_once_and_then_known() -> None:
    manager = looking()
    request = only_request(manager)
    assert request.message.coordinator_keys == ["g"]
    no_request(manager)
    assert respond(manager, request, coordinators=[{"key": "g", "node_id": 7, "host": "h", "port": 9}]) == []
    assert (manager.find(NOW, "more"), manager.address) == (7, ("h", 9))
    no_request(manager)


@pytest.mark.parametrize("trouble", [
    LOST, TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
])  # fmt: skip
def test_a_failed_lookup_is_repeated_after_growing_pauses(trouble: Any) -> None:
    manager = looking()
    now = NOW
    for pause in (0.1, 0.2, 0.4):
        request = only_request(manager, now)
        if isinstance(trouble, RequestFailure):
            assert manager.on_response(request, trouble, now) == []
        else:
            respond(
                manager, request, now, coordinators=[{"key": "g", "error_code": trouble, "host": "", "node_id": -1}]
            )
        assert no_request(manager, now) == pytest.approx(now + pause)
        now += pause
    only_request(manager, now)


def test_a_permanent_error_is_raised_and_retried_only_on_demand() -> None:
    for trouble in (BARRED, ErrorCode.GROUP_AUTHORIZATION_FAILED):
        manager = looking()
        request = only_request(manager)
        if isinstance(trouble, RequestFailure):
            (event,) = manager.on_response(request, trouble, NOW)
        else:
            (event,) = respond(manager, request, coordinators=[{"key": "g", "error_code": trouble, "host": ""}])
        assert isinstance(event, BackgroundError)
        assert manager.failed is event.error
        no_request(manager, NOW + 100)
        manager.retry()
        only_request(manager, NOW + 100)


def test_a_lost_coordinator_is_looked_up_again() -> None:
    for reason in (LOST, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        manager = found_coordinator()
        manager.check(reason, NOW)
        assert manager.node_id is None
        only_request(manager)
    manager = found_coordinator()
    manager.check(ErrorCode.ILLEGAL_GENERATION, NOW)
    assert manager.node_id == 1


def test_a_response_after_the_end_is_ignored() -> None:
    manager = looking()
    request = only_request(manager)
    manager.stop(NOW)
    assert manager.on_response(request, RequestFailure(FailureKind.AUTHENTICATION), NOW) == []
    manager.stop(NOW)
    assert manager.find(NOW, "late") is None
    no_request(manager)
