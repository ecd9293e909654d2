"""The fast path of every connection and the wait of the loop, in C (`_pump.c`) where that was built.

Why. Of what a forwarded request costs in Python most is not the code on its path, which is short, but that between two
requests the interpreter has left the caches. In front of a real broker, everything pinned to one core, a forwarded
small request and its answer took 2.1 times the CPU of a relay in C without it; the table in the README has the
figures with it.

The reactor works without it as well: then it polls and calls back in Python (`faults.serve`), and `Upward.ready` and
`Downward.ready` are the fast path.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from proxy.forwarding.walking import AnswerWalk, RequestWalk
from proxy.loop.polling import Poller
from proxy.loop.turns import Turns

if TYPE_CHECKING:
    _Pump: Callable[[int, memoryview, Mapping[int, Callable[[int], None]], Turns], Pump] | None
else:
    try:
        from proxy.forwarding._pump import Pump as _Pump
    except ImportError:
        _Pump = None


class Pump(Protocol):
    """One per reactor.

    A way is a walk that a descriptor feeds. While its `flows` is set, bytes that come are walked and, where all of
    them pass, sent on without any Python. Otherwise these methods of the walk are called, with trouble handed to
    `failed` (faults.Owner):

    - `ended(errno, 0)`: the stream ended (0) or broke;
    - `walked(upto, count)`: `count` bytes stand in the receive buffer, and the walk stopped before the last of them;
    - `sent(sent, count)`: all `count` bytes pass, of which `sent` were taken; a negative number is -errno. Also called
      when all were taken but more requests wait for answers than `in_flight_max`.
    """

    def turn(self, wait_s: float) -> None:
        """Wait for sockets at most so long and serve them; returns early once anything in Python was called.

        Raises:
            OSError: the wait itself failed.
            BaseException: whatever is no Exception, or was raised by `failed`.
        """

    def connect(self, fd: int, walk: RequestWalk | AnswerWalk, out_fd: int) -> None:
        """What comes from `fd` is walked by `walk` and sent to `out_fd`; others register both with the poller."""

    def forget(self, fd: int) -> None:
        """The descriptor is about to be closed; harmless when it has no way."""


def new_pump(
    poller: Poller, buffer: memoryview, ready: Mapping[int, Callable[[int], None]], turns: Turns
) -> Pump | None:
    """A pump over this poller, the receive buffer and the reactor's callbacks; None where there can be none."""
    if _Pump is None or not isinstance(poller, select.epoll):
        return None
    return _Pump(poller.fileno(), buffer, ready, turns)
