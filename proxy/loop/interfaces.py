"""What the loop gives to those who wait (a clock with alarms, worker threads, a place for notes), and what it is given:
a pump, and words about the work that is under way."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol, TypeVar

from proxy.loop.promise import Promise
from proxy.wire.errors import ProxyError

T = TypeVar("T")


class Timer(Protocol):
    """A call planned for later."""

    def cancel(self) -> None:
        """Do not call; harmless when it has been called or cancelled."""


class Timers(Protocol):
    """The reactor's clock and alarm."""

    def now(self) -> float:
        """Monotonic seconds, read once per loop turn."""

    def wall_ms(self) -> int:
        """Wall clock, milliseconds since 1970: for `by_duration` and for answers that carry a time."""

    def call_at(self, deadline: float, callback: Callable[[], None]) -> Timer:
        """Call once, at or soon after `deadline` on the clock of `now`."""


class WorkersBusy(ProxyError):
    """More computations wait for a thread than may; nothing was begun."""


class Workers(Protocol):
    """Threads for computations that would hold up the loop: more than about a millisecond (loop/README.md rule 11)."""

    def run(self, work: Callable[[], T], owner: Hashable = None, *, is_large: bool = False) -> Promise[T]:
        """Compute elsewhere; settled in the loop. `work` touches nothing that anybody changes meanwhile.

        Args:
            work: what is computed.
            owner: on whose account; owners share the threads' time.
            is_large: it may take far longer than others', which do not wait behind it.

        Fails with WorkersBusy: too much waits already.
        """


class Notes(Protocol):
    """Where handlers and machines say what happened: becomes a log line and counters (`observe`)."""

    def __call__(self, event: str, /, **context: Any) -> None:
        """Note an event (kebab-case) and its circumstances."""


class Described(Protocol):
    """Something whose work may take long."""

    def describe(self) -> Mapping[str, object]:
        """What a log line about it says."""


class Request(Protocol):
    """What kind of request is worked on."""

    @property
    def key(self) -> int:
        """API key."""

    @property
    def version(self) -> int:
        """API version."""


class Pump(Protocol):
    """A faster wait of the loop, which passes on by itself what needs no call of Python (`forwarding.pump`)."""

    def turn(self, wait_s: float) -> None:
        """Wait for sockets at most so long and serve them; returns early once anything in Python was called.

        Raises:
            OSError: the wait itself failed.
            BaseException: whatever is no Exception, or was raised by `failed` of an owner.
        """

    def connect(self, fd: int, walk: Any, out_fd: int) -> None:
        """What comes from `fd` is walked by `walk` and sent to `out_fd`; others register both with the poller."""

    def forget(self, fd: int) -> None:
        """The descriptor is about to be closed; harmless when it has no way."""
