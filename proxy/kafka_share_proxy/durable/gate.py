"""Admission of requests that depend on a state: it must be loaded, and this proxy must own it.

Rule: durable/README.md 26. A gate has a door for each partition of the state's topic, and one lease for all of them.
While a door is closed, requests wait with their connection muted, because a client that retries costs more. The check
after the handler is for the lease: a machine that was suspended beyond it must not return old state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.errors import NO_ERROR, ErrorCode


@dataclass(slots=True)
class _Door:
    """Admission to one partition. Open without an error code."""

    code: ErrorCode = ErrorCode.NONE
    reason: str = ""
    inside: dict[Callable[[], None], None] = field(default_factory=dict)
    """Callbacks that end the requests in progress."""
    relying: dict[Callable[[], None], None] = field(default_factory=dict)
    """Callbacks of those that rely on the open door between requests."""


class StateGate:
    """Gate of one state, open at first."""

    def __init__(
        self, partitions: int, partition_of: Callable[[str], int], lease: Callable[[], bool] = lambda: True
    ) -> None:
        """`partition_of`: by group id. `lease`: returns True if no other proxy can be the owner."""
        self.all = range(partitions)
        self.refused: dict[int, str] = {}
        """Partitions that are not served -> reason."""
        self.lease = lease
        self.standby = ""
        """The proxy that serves everything while this one is a standby. Empty if unknown."""
        self.denied = ""
        """Rights that the proxy's own identity lacks."""
        self.partition_of = partition_of
        self.closed: set[int] = set()
        """Partitions whose doors are closed."""
        self.requested: set[int] = set()
        """Closed partitions for which a request waits, or may."""
        self.on_requested: Callable[[Collection[int]], object] = lambda _partitions: None
        """Called with partitions for which a first request waits."""
        self.on_closing: Callable[[Collection[int]], object] = lambda _partitions: None
        """Called with the partitions whose doors close, before requests in progress are ended."""
        self._doors = [_Door() for _ in self.all]
        self._loading: dict[int, float | None] = {}
        """Partition -> time at which a caller first saw it loading."""
        self._waiters: list[Promise[None]] = []

    @property
    def is_open(self) -> bool:
        return self.lets_in(self.all)

    @property
    def refusal(self) -> ErrorCode:
        return self.why_not(self.all)[0]

    @property
    def reason(self) -> str:
        return self.why_not(self.all)[1]

    def lets_in(self, partitions: Sequence[int]) -> bool:
        """Return True if a request for these partitions may run: all doors are open and the lease holds."""
        doors = self._doors
        for partition in partitions:
            if doors[partition].code != NO_ERROR:
                return False
        return not partitions or self.lease()

    def why_not(self, partitions: Iterable[int]) -> tuple[ErrorCode, str]:
        """Return the error code and the reason of the first closed door, or of an ended lease."""
        for partition in partitions:
            door = self._doors[partition]
            if door.code != ErrorCode.NONE:
                return door.code, door.reason
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, ""

    @property
    def loading(self) -> Collection[int]:
        """Partitions that are being loaded."""
        return self._loading.keys()

    def is_loading(self, group_id: str) -> bool:
        """Check the group. Hashes only if any partition is being loaded."""
        return bool(self._loading) and self.partition_of(group_id) in self._loading

    def loading_for(self, partition: int, now: float) -> float:
        """Return the seconds since a caller first saw the partition loading, or 0."""
        if partition not in self._loading:
            return 0.0
        since = self._loading[partition]
        if since is None:
            since = self._loading[partition] = now
        return now - since

    def enter(self, partitions: Iterable[int], end: Callable[[], None]) -> None:
        """Register a request. `end` is called when one of the doors closes."""
        for partition in partitions:
            self._doors[partition].inside[end] = None

    def leave(self, partitions: Iterable[int], end: Callable[[], None]) -> None:
        for partition in partitions:
            self._doors[partition].inside.pop(end, None)

    def rely(self, partitions: Iterable[int], end: Callable[[], None]) -> None:
        """Serve requests without asking for admission, until `end` is called: one of the doors begins to close."""
        for partition in partitions:
            self._doors[partition].relying[end] = None

    def rely_no_longer(self, partitions: Iterable[int], end: Callable[[], None]) -> None:
        for partition in partitions:
            self._doors[partition].relying.pop(end, None)

    def request(self, partitions: Iterable[int]) -> None:
        """Note that a request waits for closed partitions."""
        new = set(partitions) - self.requested
        if new:
            self.requested |= new
            self.on_requested(new)

    def open(self, partitions: Iterable[int] | None = None) -> None:
        """Admit requests. None: all partitions."""
        self.standby = self.denied = ""
        opened = tuple(self.all if partitions is None else partitions)
        for partition in opened:
            self._doors[partition].code, self._doors[partition].reason = ErrorCode.NONE, ""
            self._loading.pop(partition, None)
        self.closed.difference_update(opened)
        self.requested.difference_update(opened)
        self.wake()

    def closing(self, partitions: Iterable[int], code: ErrorCode, reason: str) -> None:
        """Reject new requests. Requests in progress may finish."""
        to_close = tuple(partitions)
        for partition in to_close:
            self._doors[partition].code, self._doors[partition].reason = code, reason
            if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                self._loading.setdefault(partition, None)
            else:
                self._loading.pop(partition, None)
        for partition in to_close:
            door = self._doors[partition]
            ends, door.relying = door.relying, {}
            for end in ends:
                end()
        newly = set(to_close) - self.closed
        self.closed |= newly
        if newly:
            self.on_closing(newly)
        self.wake()

    def is_closed(self, group_id: str) -> bool:
        """Check the door of the group. Hashes only if any door is closed."""
        return bool(self.closed) and self.partition_of(group_id) in self.closed

    def is_idle(self, partitions: Iterable[int]) -> bool:
        """True if no request is in progress. Those served without admission count once a door begins to close."""
        return not any(self._doors[partition].inside for partition in partitions)

    def close(self, code: ErrorCode, reason: str, partitions: Iterable[int] | None = None) -> None:
        """Reject new requests and end those in progress. None: all partitions."""
        to_close = tuple(self.all if partitions is None else partitions)
        self.closing(to_close, code, reason)
        for partition in to_close:
            door = self._doors[partition]
            inside, door.inside = door.inside, {}
            for end in inside:
                end()

    def wake(self) -> None:
        """Let waiting requests check the gate again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.set(None)

    def wait(self) -> Promise[None]:
        """Return a promise for the next change. Pass it to `forget` if it is no longer needed."""
        promise: Promise[None] = Promise()
        self._waiters.append(promise)
        return promise

    def forget(self, promise: Promise[None]) -> None:
        if promise in self._waiters:
            self._waiters.remove(promise)
