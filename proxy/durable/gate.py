"""Whether requests that depend on a state may be served now: it is loaded, and it is this proxy that owns it.

Theory of operation. Each state has a gate of its own, so that one that cannot be loaded does not keep requests about
others waiting. A gate has a door for each partition of the state's topic, and one lease for all of them. Every handler
that needs the state runs between two looks at the door of its group. While that is closed a request waits for a bounded
time (its connection is muted: a client that asks again and again costs more), then its feature refuses it with what
makes every stock client try again. What runs when a door closes is ended, so that nobody goes on with state that is
somebody else's; the second look is for the lease: a machine that was suspended beyond it must not tell anybody what it
believed before.

A door may be *closing* first: nobody is let in any more, and what is inside may finish.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from proxy.loop.promise import Promise
from proxy.wire.errors import NO_ERROR, ErrorCode

HOLD_MAX_S = 2.0
"""A request waits so long for the gate; clients wait at least 5 s longer than the wait they ask for."""


@dataclass(slots=True)
class _Door:
    """To what one partition holds."""

    code: ErrorCode = ErrorCode.NONE
    """Why it is closed; NONE = open."""
    reason: str = ""
    """The same, for people."""
    inside: dict[Callable[[], None], None] = field(default_factory=dict)
    """What ends each request that is inside."""


class StateGate:
    """Open unless somebody closes it."""

    def __init__(self, partitions: int, partition_of: Callable[[str], int]) -> None:
        """`partition_of`: where all that a state keeps about one group of clients is stored, by the group's id."""
        self.all = range(partitions)
        """Every partition."""
        self.refused: dict[int, str] = {}
        """Partitions that cannot be read here, and why: what they hold is not served."""
        self.lease: Callable[[], bool] = lambda: True
        """Whether nobody else can have become the owner, by a clock that counts sleep as well."""
        self.standby = ""
        """Who else serves everything, for people, while this proxy waits to take over; empty: nobody is known."""
        self.denied = ""
        """Which rights the proxy's own identity lacks to own the state, for people; empty: none that is known of."""
        self.partition_of = partition_of
        """Where all that is kept about a group is stored."""
        self._doors = [_Door() for _ in self.all]
        self._loading: dict[int, float | None] = {}
        """Doors that are closed because state is being loaded, and when somebody first saw it."""
        self._waiters: list[Promise[None]] = []

    @property
    def is_open(self) -> bool:
        """Whether every request may be answered at this moment."""
        return self.lets_in(self.all)

    @property
    def refusal(self) -> ErrorCode:
        """What a coordinator answers while some of it is closed."""
        return self.why_not(self.all)[0]

    @property
    def reason(self) -> str:
        """Why some of it is closed, for people."""
        return self.why_not(self.all)[1]

    def lets_in(self, partitions: Sequence[int]) -> bool:
        """Whether requests about groups of all these partitions may be answered at this moment."""
        doors = self._doors
        for partition in partitions:
            if doors[partition].code != NO_ERROR:
                return False
        return not partitions or self.lease()

    def why_not(self, partitions: Iterable[int]) -> tuple[ErrorCode, str]:
        """The code of a coordinator, and words, of the first door that is closed; else those of the lease."""
        for partition in partitions:
            door = self._doors[partition]
            if door.code != ErrorCode.NONE:
                return door.code, door.reason
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, ""

    @property
    def loading(self) -> Collection[int]:
        """Partitions whose groups nobody knows yet: they are being loaded here."""
        return self._loading.keys()

    def is_loading(self, group_id: str) -> bool:
        """Whether nobody knows yet if there is such a group here; says so without a hash where nothing is loading."""
        return bool(self._loading) and self.partition_of(group_id) in self._loading

    def loading_for(self, partition: int, now: float) -> float:
        """How long somebody has seen it loading; 0 where it is not, or this is the first look."""
        if partition not in self._loading:
            return 0.0
        since = self._loading[partition]
        if since is None:
            since = self._loading[partition] = now
        return now - since

    def enter(self, partitions: Iterable[int], end: Callable[[], None]) -> None:
        """A request went in; `end` is called when one of these doors closes. `leave` when it is done."""
        for partition in partitions:
            self._doors[partition].inside[end] = None

    def leave(self, partitions: Iterable[int], end: Callable[[], None]) -> None:
        """The request has ended; `end` is not called any more."""
        for partition in partitions:
            self._doors[partition].inside.pop(end, None)

    def open(self, partitions: Iterable[int] | None = None) -> None:
        """State is loaded and ours: let requests in. None: every partition."""
        self.standby = self.denied = ""
        for partition in self.all if partitions is None else partitions:
            self._doors[partition].code, self._doors[partition].reason = ErrorCode.NONE, ""
            self._loading.pop(partition, None)
        self.look()

    def closing(self, partitions: Iterable[int], code: ErrorCode, reason: str) -> None:
        """Let nothing in; what is inside may finish."""
        for partition in partitions:
            self._doors[partition].code, self._doors[partition].reason = code, reason
            if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                self._loading.setdefault(partition, None)
            else:
                self._loading.pop(partition, None)
        self.look()

    def close(self, code: ErrorCode, reason: str, partitions: Iterable[int] | None = None) -> None:
        """Let nothing in, and nothing out that is under way. None: every partition."""
        wanted = tuple(self.all if partitions is None else partitions)
        self.closing(wanted, code, reason)
        for partition in wanted:
            door = self._doors[partition]
            inside, door.inside = door.inside, {}
            for end in inside:
                end()

    def look(self) -> None:
        """Something has changed: whoever waits looks again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.set(None)

    def wait(self) -> Promise[None]:
        """Settled when something has changed; hand it to `forget` when that is not waited for any more."""
        promise: Promise[None] = Promise()
        self._waiters.append(promise)
        return promise

    def forget(self, promise: Promise[None]) -> None:
        """Nobody waits for it any more."""
        if promise in self._waiters:
            self._waiters.remove(promise)
