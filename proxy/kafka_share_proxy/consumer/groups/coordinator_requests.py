"""FindCoordinator for one group, sent only when a request needs the coordinator (consumer/README.md rule 6)."""

from __future__ import annotations

import math
from typing import Any

from kafka_share_proxy.consumer.events import BackgroundError, BackgroundEvent, BrokerRefused, ConsumerError
from kafka_share_proxy.consumer.groups.states import CoordinatorState, StateTrace
from kafka_share_proxy.consumer.requests import DueRequests, Outcome, RequestFailure, RetryBackoff, UnsentRequest
from kafka_share_proxy.consumer.troubles import COORDINATOR, TroubleKind, Troubles
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

GROUP_KEY = 0
VERSIONS = (4, 6)

RETRIABLE = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_SERVER_ERROR}
)
COORDINATOR_MOVED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})


ADVICE = (
    "Check that all brokers run, and that the topic __consumer_offsets has leaders "
    "(offsets.topic.replication.factor must not exceed the number of brokers)"
)


class CoordinatorRequests:
    """The coordinator of one group, shared by all managers that send requests to it."""

    def __init__(
        self,
        group_id: str,
        trace: StateTrace[CoordinatorState],
        backoff: RetryBackoff,
        request_timeout_s: float,
        troubles: Troubles | None = None,
    ) -> None:
        self._troubles = troubles or Troubles()
        self._group_id = group_id
        self._trace = trace
        self._backoff = backoff
        self._request_timeout_s = request_timeout_s
        self._in_flight: UnsentRequest | None = None
        self._failed: ConsumerError | None = None
        self.node_id: int | None = None
        self.address: tuple[str, int] | None = None
        """(host, port) from the last response."""

    def start(self, now: float) -> None:
        self._trace.to(CoordinatorState.INITIALIZED, now, "the consumer has started")

    def stop(self, now: float) -> None:
        self._in_flight, self.node_id = None, None
        if self._trace.state is not CoordinatorState.DOWN:
            self._trace.to(CoordinatorState.DOWN, now, "the consumer is closed")

    def find(self, now: float, reason: str) -> int | None:
        """Return the node id of the coordinator. If it is unknown, start its discovery and return None."""
        if self._trace.state is CoordinatorState.INITIALIZED:
            self._trace.to(CoordinatorState.COORDINATOR_DISCOVERY, now, reason)
        return self.node_id

    def mark_unknown(self, now: float, reason: str) -> None:
        """Discover the coordinator again (AbstractCoordinator.markCoordinatorUnknown)."""
        if self._trace.state is CoordinatorState.STABLE:
            self.node_id = None
            self._trace.to(CoordinatorState.COORDINATOR_DISCOVERY, now, reason)

    def check(self, outcome: Outcome | ErrorCode, now: float) -> None:
        """Mark the coordinator as unknown if the outcome of a request to it shows that it has failed or moved."""
        if isinstance(outcome, RequestFailure):
            self.mark_unknown(now, outcome.reason)
        elif isinstance(outcome, ErrorCode) and outcome in RETRIABLE | COORDINATOR_MOVED:
            self._unavailable(outcome, "")
            if outcome in COORDINATOR_MOVED:
                self.mark_unknown(now, outcome.name)

    def poll(self, now: float) -> DueRequests:
        if self._trace.state is not CoordinatorState.COORDINATOR_DISCOVERY or self._in_flight or self._failed:
            return DueRequests()
        if not self._backoff.is_ready(now):
            return DueRequests(wake_at=self._backoff.ready_at)
        message = messages.FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[self._group_id])
        self._in_flight = UnsentRequest(
            sender=self, api="FindCoordinator", message=message, versions=VERSIONS, timeout_s=self._request_timeout_s
        )
        return DueRequests((self._in_flight,), math.inf)

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> list[BackgroundEvent]:
        if request is not self._in_flight:
            return []
        self._in_flight = None
        if isinstance(outcome, RequestFailure):
            if outcome.is_retriable:
                self._backoff.failed(now)
                return []
            return self._fail(ConsumerError(f"FindCoordinator: {outcome.reason}"), now)
        return self._on_found(outcome, now)

    def _on_found(self, response: Any, now: float) -> list[BackgroundEvent]:
        (coordinator,) = response.coordinators[:1] or [None]
        if coordinator is None or coordinator.error_code in RETRIABLE:
            self._backoff.failed(now)
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if coordinator is None else ErrorCode.of(coordinator.error_code)
            self._unavailable(code, (coordinator and coordinator.error_message) or "")
            return []
        if coordinator.error_code:
            about = f"group {self._group_id}"
            return self._fail(
                BrokerRefused("FindCoordinator", coordinator.error_code, about, coordinator.error_message), now
            )
        self._backoff.succeeded()
        self.node_id, self.address = coordinator.node_id, (coordinator.host, coordinator.port)
        self._trace.to(CoordinatorState.STABLE, now, f"node {coordinator.node_id}")
        return []

    def _unavailable(self, code: ErrorCode, detail: str) -> None:
        reason = f"{code.name} ({detail})" if detail else code.name
        self._troubles.report(
            TroubleKind.GROUP,
            COORDINATOR,
            f"the coordinator of group {self._group_id!r} is not available: {reason}",
            ADVICE,
        )

    def _fail(self, error: ConsumerError, now: float) -> list[BackgroundEvent]:
        self._failed = error
        self._backoff.failed(now)
        return [BackgroundError(error=error)]

    @property
    def failed(self) -> ConsumerError | None:
        return self._failed

    def retry(self) -> None:
        """Allow discovery again, after the application has received the final error."""
        self._failed = None
