"""Common part of consumers and share consumers: coordinator, metadata, and the managers that make requests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from kafka_share_proxy.consumer.client_options import ClientOptions
from kafka_share_proxy.consumer.events import BackgroundEvent
from kafka_share_proxy.consumer.groups.coordinator_requests import CoordinatorRequests
from kafka_share_proxy.consumer.groups.states import CoordinatorState, StateChange, coordinator_trace
from kafka_share_proxy.consumer.metadata_requests import MetadataRequests
from kafka_share_proxy.consumer.requests import Outcome, RequestManager, RetryBackoff, UnsentRequest
from kafka_share_proxy.consumer.topic_listing import TopicListing
from kafka_share_proxy.consumer.troubles import Troubles
from kafka_share_proxy.wire.errors import ProxyError

Options = TypeVar("Options", bound=ClientOptions)


class ClientCore(Generic[Options]):
    """Base class of the cores that a network task drives. No request is sent before `start`."""

    def __init__(
        self,
        options: Options,
        jitter: Callable[[], float],
        on_coordinator_state: Callable[[StateChange[CoordinatorState]], None] | None,
        *,
        creates_topics: bool = False,
        needs_weights: bool = False,
    ) -> None:
        self.options = options
        self.next_deadline = math.inf
        """Time of the next `poll` if nothing happens before."""
        self._jitter = jitter
        self._outbox: list[BackgroundEvent] = []
        self._managers: tuple[RequestManager, ...] = ()
        self.troubles = Troubles()
        self.coordinator_trace = coordinator_trace(on_coordinator_state)
        self.coordinator = CoordinatorRequests(
            options.group, self.coordinator_trace, self._backoff(), options.request_timeout_s, self.troubles
        )
        self.metadata = MetadataRequests(
            options,
            self._backoff(),
            creates_topics=creates_topics,
            needs_weights=needs_weights,
            troubles=self.troubles,
        )
        self.listing = TopicListing(options, self._backoff())

    def _backoff(self) -> RetryBackoff:
        return RetryBackoff(self.options.retry_backoff_s, self.options.retry_backoff_max_s, self._jitter)

    def start(self, now: float) -> None:
        self.coordinator.start(now)

    def stop(self, now: float) -> None:
        self.coordinator.stop(now)

    @property
    def waits_for(self) -> str:
        """State that a poll waits for, for an error message."""
        raise NotImplementedError

    def handle(self, event: Any, now: float) -> None:
        raise NotImplementedError

    def last_refusal(self, _call_id: int) -> ProxyError | None:
        """Return the last error of a broker that a waiting call has met, if any."""
        return None

    def gauges(self) -> Mapping[str, float]:
        """Return metrics by the end of their names."""
        raise NotImplementedError

    def give_up(self, call_id: int) -> None:
        """Forget a call whose caller has stopped waiting."""
        raise NotImplementedError

    def poll(self, now: float) -> list[UnsentRequest]:
        """Return the requests that are due, and set `next_deadline`."""
        requests: list[UnsentRequest] = []
        self.next_deadline = math.inf
        for manager in self._managers:
            result = manager.poll(now)
            requests += result.requests
            self.next_deadline = min(self.next_deadline, result.wake_at)
            self._absorb(result.events, now)
        return requests

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> None:
        reports = self.troubles.reports
        self._absorb(request.sender.on_response(request, outcome, now), now)
        self.troubles.on_outcome(request, outcome, reports)

    def events(self) -> list[BackgroundEvent]:
        """Remove and return the events for the application."""
        events, self._outbox = self._outbox, []
        return events

    def _absorb(self, events: Iterable[BackgroundEvent], _now: float) -> None:
        self._outbox += events
