"""What `share_home` goes by: who says what this proxy is to own, and how far it is with owning it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import trio

from proxy.cluster.producing import TakenOver
from proxy.cluster.replaying import Replay
from proxy.errors import ProxyError


class Owner(Protocol):
    """Says which state partitions this proxy is to own."""

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
    """Partitions that were assigned together, until they are served."""

    partitions: set[int]
    """Those that are still wanted."""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    taken: dict[int, TakenOver] = field(default_factory=dict)
    checking: set[int] = field(default_factory=set)
    replays: dict[int, Replay] = field(default_factory=dict)
    changed: trio.Event = field(default_factory=trio.Event)

    def note(self) -> None:
        """Something came."""
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
