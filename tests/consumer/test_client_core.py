"""Managers of a consumer: their requests, their events, and the time of the next poll."""

from __future__ import annotations

import math

from kafka_share_proxy.consumer.client_core import ClientCore
from kafka_share_proxy.consumer.client_options import ClientOptions
from kafka_share_proxy.consumer.events import BackgroundError, BackgroundEvent, ConsumerError
from kafka_share_proxy.consumer.groups.states import CoordinatorState
from kafka_share_proxy.consumer.requests import DueRequests, FailureKind, Outcome, RequestFailure, UnsentRequest

from tests.consumer.managers import NOW

EVENT = BackgroundError(error=ConsumerError("a trouble"))


class Manager:
    """Wants one request, and reports an event for each response."""

    def __init__(self, wake_at: float) -> None:
        self.request = UnsentRequest(sender=self, api="Metadata", message=None, versions=(12, 12), timeout_s=1.0)
        self._wake_at = wake_at

    def poll(self, _: float) -> DueRequests:
        return DueRequests((self.request,), self._wake_at, (EVENT,))

    def on_response(self, _request: UnsentRequest, _outcome: Outcome, _now: float) -> list[BackgroundEvent]:
        return [EVENT]


def core_of(*managers: Manager) -> ClientCore[ClientOptions]:
    core = ClientCore(ClientOptions(group_id="g"), lambda: 0.0, None)
    core._managers = managers
    return core


def test_a_poll_has_the_requests_of_all_managers_and_the_earliest_time() -> None:
    late, early = Manager(NOW + 9), Manager(NOW + 2)
    core = core_of(late, early)
    assert core.poll(NOW) == [late.request, early.request]
    assert core.next_deadline == NOW + 2
    assert core.events() == [EVENT, EVENT]
    assert core.events() == []


def test_a_core_without_a_request_waits() -> None:
    core = core_of()
    assert (core.poll(NOW), core.next_deadline) == ([], math.inf)
    core.start(NOW)
    assert core.coordinator_trace.state is CoordinatorState.INITIALIZED
    core.stop(NOW)
    assert core.coordinator_trace.state is CoordinatorState.DOWN


def test_a_failure_goes_to_its_manager_and_to_the_troubles() -> None:
    manager = Manager(math.inf)
    core = core_of(manager)
    core.on_response(manager.request, RequestFailure(FailureKind.TIMED_OUT, "no response of node 3"), NOW)
    assert core.events() == [EVENT]
    assert "no response of node 3" in core.troubles.why()
