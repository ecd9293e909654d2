"""Common base of members of both group protocols: poll deadline, and the state of giving partitions up."""

from __future__ import annotations

import math
from collections.abc import Callable

from kafka_share_proxy.consumer.events import ConsumerError
from kafka_share_proxy.consumer.groups.classic_messages import MemberIdentity
from kafka_share_proxy.consumer.groups.coordinator_requests import CoordinatorRequests
from kafka_share_proxy.consumer.groups.rebalance_flow import RebalanceFlow
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.partitions import Partitions
from kafka_share_proxy.consumer.requests import RetryBackoff


class GroupMembership:
    """Membership of one consumer. Subclasses implement joining, heartbeats and leaving."""

    def __init__(
        self,
        options: ConsumerOptions,
        flow: RebalanceFlow,
        coordinator: CoordinatorRequests,
        backoff: RetryBackoff,
        is_settled: Callable[[Partitions], bool],
    ) -> None:
        self._options = options
        self._flow = flow
        self._coordinator = coordinator
        self._backoff = backoff
        self._is_settled = is_settled
        self.fatal: ConsumerError | None = None
        """No request is sent after this error."""
        self._topics: frozenset[str] = frozenset()
        self._session_deadline = math.inf
        self._settle_by = math.inf
        """Time from which on commits in flight no longer delay giving released partitions up."""
        self._poll_deadline = math.inf
        """Infinite before the first poll, and after a deadline that was missed."""
        self._leave_as: MemberIdentity | None = None
        """Identity to leave with. None: no leave is due."""

    @property
    def is_polled(self) -> bool:
        """True if the application has polled, and max.poll.interval has not passed since."""
        return self._poll_deadline < math.inf

    def on_poll(self, now: float) -> None:
        self._poll_deadline = now + self._options.max_poll_interval_s

    def acknowledge_revoked(self, partitions: Partitions) -> None:
        self._flow.release(partitions)
