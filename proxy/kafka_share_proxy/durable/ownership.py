"""Interface between `state_home` and the group of proxies, and the progress of a takeover."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, Protocol

import trio

from kafka_share_proxy.brokers.cluster_client import AuthenticationNeeded
from kafka_share_proxy.brokers.cluster_connection import AuthenticationFailed
from kafka_share_proxy.brokers.internal_topics import TopicRefused
from kafka_share_proxy.durable.described_state import DescribedState
from kafka_share_proxy.durable.partition_log import Replay
from kafka_share_proxy.durable.producer_requests import TakenOver
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError

TOGETHER_MAX = 5
"""Maximum number of partitions without requests that are taken over together while clients use others."""


class OwnershipEvents(NamedTuple):
    """Callbacks for changes of the ownership while it is active."""

    changed: Callable[[], None] = lambda: None
    """Called when `assigned` has changed."""
    rejoins: Callable[[], None] = lambda: None
    """Called when this proxy joins the group again, so that the other members must rejoin."""
    renewed: Callable[[], None] = lambda: None
    """Called when the lease was renewed."""
    refused: Callable[[str, ProxyError | None], None] = lambda _reason, _error: None
    """Called with the reason, and an error if there is one, when this proxy may not own partitions now."""


class Ownership(Protocol):
    """Assignment of partitions to this proxy. See `ownership_group.Membership`."""

    lease_s: float
    assigned: frozenset[int]

    async def run(self, events: OwnershipEvents) -> None:
        """Take part in the assignment, until cancelled."""

    def stopped(self, partitions: Iterable[int]) -> None:
        """Report stopped numbers, which another proxy may own now."""

    def member_ended(self, peer: str) -> bool:
        """Give the partitions of another member to others, without the wait for its session timeout.

        Only for a process that has certainly ended: one that still serves would trust its lease.

        Args:
            peer: address that other proxies dialled.

        Returns:
            False if the last assignment has no such member.
        """

    def retire(self) -> None:
        """Let others own everything, before `run` is cancelled."""

    @property
    def all_elsewhere(self) -> bool:
        """True if others own everything."""

    @property
    def has_others(self) -> bool:
        """True if other proxies are members, or were before the last assignment: their clients may use any group."""

    def is_valid(self) -> bool: ...

    @property
    def is_member(self) -> bool: ...


@dataclass(slots=True, eq=False)
class Takeover:
    """Partitions of one state, from assignment until they are served."""

    partitions: set[int]
    """Partitions that are not served yet."""
    restores: bool = False
    """True if memory is written to the topic, instead of loaded."""
    has_clients: bool = False
    """True if requests waited for its partitions, or other proxies serve clients. Then few are taken over together."""
    is_urgent: bool = False
    """True if it was split off from one that has checked the topic, because requests wait for its partitions."""
    current: set[int] = field(default_factory=set)
    """Partitions that are taken over now."""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    taken_over: dict[int, TakenOver] = field(default_factory=dict)
    """Position of the takeover record, by partition, once it is in the log."""
    to_check: set[int] = field(default_factory=set)
    """Partitions with a new producer id, whose earlier owner may still append (durable/README.md rule 16)."""
    replays: dict[int, Replay] = field(default_factory=dict)
    """Logs that are read, by partition, until their values are loaded."""
    changed: trio.Event = field(default_factory=trio.Event)
    """Set by `notify`. The takeover replaces it before it waits."""

    def notify(self) -> None:
        """Let the takeover continue: one of its fields has changed, or a request waits for a partition."""
        self.changed.set()

    def select_next(self, requested: Collection[int]) -> list[int]:
        """Choose what is taken over now: requested partitions, or else others. Return them in order."""
        for progress in (self.taken_over, self.to_check, self.replays):
            progress.clear()
        first = set() if self.restores else self.partitions.intersection(requested)
        self.has_clients |= bool(first)
        self.current = first or set(islice(self.partitions, TOGETHER_MAX if self.has_clients else None))
        return sorted(self.current)

    def may_wait(self, requested: Collection[int]) -> bool:
        """Return True if none of the partitions is requested, and clients use others."""
        return self.has_clients and not self.restores and self.partitions.isdisjoint(requested)

    def split_off(self, requested: Collection[int]) -> Takeover | None:
        """Return a takeover of requested partitions that are not taken over now. None if there are none."""
        waiting = self.partitions.intersection(requested) - self.current
        if self.restores or not self.current or not waiting:
            return None
        self.partitions -= waiting
        return Takeover(waiting, has_clients=True, is_urgent=True)

    def remove(self, partitions: Iterable[int]) -> None:
        """Remove partitions that this proxy no longer owns. Without any other, the takeover is cancelled."""
        self.partitions.difference_update(partitions)
        self.current &= self.partitions
        self.to_check &= self.partitions
        for partition in partitions:
            self.taken_over.pop(partition, None)
            self.replays.pop(partition, None)
        if not self.partitions:
            self.scope.cancel()
        self.notify()


def lacks_identity(error: ProxyError | None) -> bool:
    return isinstance(error, AuthenticationNeeded | AuthenticationFailed)


def refusal_of(error: ProxyError, state: DescribedState[Any]) -> tuple[ErrorCode, str, bool]:
    """Return the error code, the reason, and True if an identity is missing."""
    if lacks_identity(error):
        text = (
            f"{state.serves} are off: their state is kept in a topic ({state.setting}), for which the proxy needs "
            f"an identity of its own (upstream.sasl.*): {error}"
        )
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, text, True
    if isinstance(error, TopicRefused):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{state.serves} are off: {error}", False
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error), False
