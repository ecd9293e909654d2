"""Interface between `state_home` and the group of proxies, and the progress of a takeover."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import trio

from kafka_share_proxy.brokers.cluster_client import AuthenticationNeeded
from kafka_share_proxy.brokers.cluster_connection import AuthenticationFailed
from kafka_share_proxy.brokers.internal_topics import TopicRefused
from kafka_share_proxy.durable.described_state import DescribedState
from kafka_share_proxy.durable.partition_log import Replay
from kafka_share_proxy.durable.producer_requests import TakenOver
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError

PART_MAX = 5
"""Maximum number of partitions without requests that are taken over together while clients use others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipEvents:
    """Callbacks for changes of the ownership while it is active."""

    changed: Callable[[], None] = lambda: None
    """Called when `assigned` has changed."""
    rejoins: Callable[[], None] = lambda: None
    """Called when this proxy joins the group again, so that the other members must rejoin."""
    renewed: Callable[[], None] = lambda: None
    """Called when the lease was renewed."""
    refused: Callable[[str, ProxyError | None], None] = lambda _reason, _error: None
    """Called when another proxy is the owner, or it is unknown."""


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
    """True if requests waited for a part of it, or other proxies serve clients. Then it proceeds in small parts."""
    is_urgent: bool = False
    """True if it was divided from one that has checked the topic, because requests wait for its partitions."""
    part: set[int] = field(default_factory=set)
    """Partitions that are taken over now."""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    outcomes: dict[int, TakenOver] = field(default_factory=dict)
    checking: set[int] = field(default_factory=set)
    replays: dict[int, Replay] = field(default_factory=dict)
    changed: trio.Event = field(default_factory=trio.Event)

    def note(self) -> None:
        self.changed.set()

    def next_part(self, requested: Collection[int]) -> list[int]:
        """Choose what is taken over now: requested partitions, or else others. Return them in order."""
        for progress in (self.outcomes, self.checking, self.replays):
            progress.clear()
        first = set() if self.restores else self.partitions.intersection(requested)
        self.has_clients |= bool(first)
        self.part = first or set(islice(self.partitions, PART_MAX if self.has_clients else None))
        return sorted(self.part)

    def may_wait(self, requested: Collection[int]) -> bool:
        """Return True if none of the partitions is requested, and clients use others."""
        return self.has_clients and not self.restores and self.partitions.isdisjoint(requested)

    def divided(self, requested: Collection[int]) -> Takeover | None:
        """Return a takeover of requested partitions that are not taken over now. None if there are none."""
        waiting = self.partitions.intersection(requested) - self.part
        if self.restores or not self.part or not waiting:
            return None
        self.partitions -= waiting
        return Takeover(waiting, has_clients=True, is_urgent=True)

    def let_go(self, partitions: Iterable[int]) -> None:
        self.partitions.difference_update(partitions)
        self.part &= self.partitions
        self.checking &= self.partitions
        for partition in partitions:
            self.outcomes.pop(partition, None)
            self.replays.pop(partition, None)
        if not self.partitions:
            self.scope.cancel()
        self.note()


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
