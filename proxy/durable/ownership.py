"""What `state_home` goes by: who says what this proxy is to own, and how far it is with owning it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import trio

from proxy.brokers.internal_topics import TopicRefused
from proxy.brokers.own_client import AuthenticationNeeded
from proxy.brokers.own_connection import AuthenticationFailed
from proxy.durable.described_state import DescribedState
from proxy.durable.partition_log import Replay
from proxy.durable.state_producer import TakenOver
from proxy.wire.errors import ErrorCode, ProxyError


class Ownership(Protocol):
    """Says which partitions this proxy is to own, of every state: `ownership_group.Membership`."""

    lease_s: float
    """The longest time that a lost owner goes on by its own clock."""
    assigned: frozenset[int]
    """What it is to own now."""
    on_changed: Callable[[], None]
    """Called when `assigned` may have changed."""
    on_renewed: Callable[[], None]
    on_refused: Callable[[str, ProxyError | None], None]

    async def run(self) -> None:
        """Take part until cancelled."""

    def stopped(self, partitions: Iterable[int]) -> None:
        """These were assigned once, are not any more, and have been stopped: somebody else may own them."""

    def is_valid(self) -> bool:
        """Whether nobody else can have become the owner meanwhile."""

    @property
    def is_member(self) -> bool:
        """Whether it is known what it is to own."""


@dataclass(slots=True, eq=False)
class Takeover:
    """Partitions of one state that were assigned together, until they are served."""

    partitions: set[int]
    """Those that are still wanted."""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    taken: dict[int, TakenOver] = field(default_factory=dict)
    checking: set[int] = field(default_factory=set)
    replays: dict[int, Replay] = field(default_factory=dict)
    changed: trio.Event = field(default_factory=trio.Event)

    def note(self) -> None:
        """Wake who waits: something of the takeover has come."""
        self.changed.set()

    def let_go(self, partitions: Iterable[int]) -> None:
        """These are not wanted any more."""
        self.partitions.difference_update(partitions)
        self.checking &= self.partitions
        for partition in partitions:
            self.taken.pop(partition, None)
            self.replays.pop(partition, None)
        if not self.partitions:
            self.scope.cancel()
        self.note()


def refusal_of(error: ProxyError, state: DescribedState[Any]) -> tuple[ErrorCode, str, bool]:
    """What trouble on the way to ownership means: the code for clients, words, and whether an identity is missing."""
    if isinstance(error, AuthenticationNeeded | AuthenticationFailed):
        text = (
            f"{state.serves} are off: their state is kept in a topic ({state.setting}), for which the proxy needs "
            f"an identity of its own (upstream.sasl.*): {error}"
        )
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, text, True
    if isinstance(error, TopicRefused):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{state.serves} are off: {error}", False
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error), False
