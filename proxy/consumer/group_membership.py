"""What members of both group protocols begin with: when they must have polled, what they give up and wait for."""

from __future__ import annotations

import math
from collections.abc import Callable

from proxy.consumer.classic_messages import MemberIdentity
from proxy.consumer.coordinator_requests import CoordinatorRequests
from proxy.consumer.events import ConsumerError
from proxy.consumer.options import ConsumerOptions
from proxy.consumer.partitions import Partitions
from proxy.consumer.rebalance_flow import RebalanceFlow
from proxy.consumer.requests import RetryBackoff


class GroupMembership:
    """A member of a group; how it joins, beats and leaves is its protocol's."""

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
        """Whether no commit of these is due or under way."""
        self.fatal: ConsumerError | None = None
        """Why the group will not have this member; nothing is asked any more."""
        self._topics: frozenset[str] = frozenset()
        self._session_deadline = self._settle_by = math.inf
        self._poll_deadline = math.inf
        """Infinite also while the application does not poll: then nothing joins."""
        self._leave_as: MemberIdentity | None = None

    @property
    def is_polled(self) -> bool:
        """The application has called poll, and this not so long ago that the group had to be left."""
        return self._poll_deadline < math.inf

    def polled(self, now: float) -> None:
        """The application has called poll."""
        self._poll_deadline = now + self._options.max_poll_interval_s

    def acknowledge_revoked(self, partitions: Partitions, _: float) -> None:
        """The application has let go."""
        self._flow.release(partitions)
