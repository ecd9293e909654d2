"""Who the group's coordinator is: FindCoordinator, only when something needs it (consumer/README.md rule 6)."""

from __future__ import annotations

import math
from typing import Any

from proxy.consumer.events import BackgroundError, BackgroundEvent, BrokerRefused, ConsumerError
from proxy.consumer.requests import Outcome, RequestFailure, RetryBackoff, UnsentRequest, Wanted
from proxy.consumer.states import CoordinatorState, StateTrace
from proxy.wire import messages
from proxy.wire.errors import ErrorCode

GROUP_KEY = 0
"""Key type of FindCoordinator."""
VERSIONS = (4, 6)

RETRIABLE = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_SERVER_ERROR}
)
GONE = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
"""Codes with which a broker says that it is not the coordinator."""


class CoordinatorRequests:
    """The coordinator of one group, for all managers that ask it."""

    def __init__(
        self, group_id: str, trace: StateTrace[CoordinatorState], backoff: RetryBackoff, request_timeout_s: float
    ) -> None:
        self._group_id = group_id
        self._trace = trace
        self._backoff = backoff
        self._request_timeout_s = request_timeout_s
        self._in_flight: UnsentRequest | None = None
        self._failed: ConsumerError | None = None
        self.node_id: int | None = None
        """None while it is not known."""
        self.address: tuple[str, int] | None = None
        """(host, port) as the last answer had it."""

    def start(self, now: float) -> None:
        """The network side runs."""
        self._trace.to(CoordinatorState.INITIALIZED, now, "the consumer has started")

    def stop(self, now: float) -> None:
        """Nothing is asked any more."""
        self._in_flight, self.node_id = None, None
        if self._trace.state is not CoordinatorState.DOWN:
            self._trace.to(CoordinatorState.DOWN, now, "the consumer is closed")

    def need(self, now: float, reason: str) -> int | None:
        """The coordinator's node id; None while it has to be looked for, which begins now."""
        if self._trace.state is CoordinatorState.INITIALIZED:
            self._trace.to(CoordinatorState.COORDINATOR_DISCOVERY, now, reason)
        return self.node_id

    def lost(self, now: float, reason: str) -> None:
        """It does not answer, or says that it is not the coordinator."""
        if self._trace.state is CoordinatorState.STABLE:
            self.node_id = None
            self._trace.to(CoordinatorState.COORDINATOR_DISCOVERY, now, reason)

    def note(self, outcome: Outcome | ErrorCode, now: float) -> None:
        """What another manager heard from it: an error code, or a failure."""
        if isinstance(outcome, RequestFailure):
            self.lost(now, outcome.text or outcome.kind.value)
        elif isinstance(outcome, ErrorCode) and outcome in GONE:
            self.lost(now, outcome.name)

    def poll(self, now: float) -> Wanted:
        """FindCoordinator, if somebody needs it and none is under way."""
        if self._trace.state is not CoordinatorState.COORDINATOR_DISCOVERY or self._in_flight or self._failed:
            return Wanted()
        if not self._backoff.is_ready(now):
            return Wanted(wake_at=self._backoff.ready_at)
        message = messages.FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[self._group_id])
        self._in_flight = UnsentRequest(
            sender=self, api="FindCoordinator", message=message, versions=VERSIONS, timeout_s=self._request_timeout_s
        )
        return Wanted((self._in_flight,), math.inf)

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> list[BackgroundEvent]:
        """Take the answer; an answer to a question of before `stop` is dropped."""
        if request is not self._in_flight:
            return []
        self._in_flight = None
        if isinstance(outcome, RequestFailure):
            if outcome.is_retriable:
                self._backoff.failed(now)
                return []
            return self._fail(ConsumerError(f"FindCoordinator: {outcome.text or outcome.kind.value}"), now)
        return self._answered(outcome, now)

    def _answered(self, response: Any, now: float) -> list[BackgroundEvent]:
        (found,) = response.coordinators[:1] or [None]
        if found is None or found.error_code in RETRIABLE:
            self._backoff.failed(now)
            return []
        if found.error_code:
            about = f"group {self._group_id}"
            return self._fail(BrokerRefused("FindCoordinator", found.error_code, about, found.error_message), now)
        self._backoff.succeeded()
        self.node_id, self.address = found.node_id, (found.host, found.port)
        self._trace.to(CoordinatorState.STABLE, now, f"node {found.node_id}")
        return []

    def _fail(self, error: ConsumerError, now: float) -> list[BackgroundEvent]:
        """No other question follows until `retry`."""
        self._failed = error
        self._backoff.failed(now)
        return [BackgroundError(error=error)]

    @property
    def failed(self) -> ConsumerError | None:
        """Why it is not looked for any more."""
        return self._failed

    def retry(self) -> None:
        """Look again after an error that was final: the application has been told, and calls again."""
        self._failed = None
