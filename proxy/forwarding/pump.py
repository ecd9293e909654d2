"""The fast path of every connection and the wait of the loop, in C (`_pump.c`) where that was built.

Why. Of what a forwarded request costs in Python most is not the code on its path, which is short, but that between two
requests the interpreter has left the caches. In front of a real broker, everything pinned to one core, a forwarded
small request and its answer took 2.1 times the CPU of a relay in C without it; the table in the README has the
figures with it.

The reactor works without it as well: then it polls and calls back in Python (`faults.serve`), and the two `ready`
methods (`client_to_broker`, `broker_to_client`) are the fast path.

A way is a walk that a descriptor feeds. While its `flows` is set, bytes that come are walked and, where all of them
pass, sent on without any Python. Otherwise these methods of the walk are called (`FedWalk`), with trouble handed to
`failed` (faults.FaultOwner).
"""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from proxy.loop.interfaces import Pump
from proxy.loop.polling import Poller
from proxy.loop.turns import Turns

if TYPE_CHECKING:
    _Pump: Callable[[int, memoryview, Mapping[int, Callable[[int], None]], Turns], Pump] | None
else:
    try:
        from proxy.forwarding._pump import Pump as _Pump
    except ImportError:
        _Pump = None


class FedWalk(Protocol):
    """What the pump calls of a walk; the walk itself is a `RequestWalk` or an `AnswerWalk`."""

    def ended(self, code: int, _: int) -> None:
        """The stream ended (0) or broke (errno)."""

    def walked(self, upto: int, count: int) -> None:
        """`count` bytes stand in the receive buffer, and the walk stopped at `upto`, before the last of them."""

    def sent(self, sent: int, count: int) -> None:
        """All `count` bytes pass, of which `sent` were taken; a negative number is -errno.

        Also called when all were taken but more requests wait for answers than `in_flight_max`.
        """


def new_pump(
    poller: Poller, buffer: memoryview, ready: Mapping[int, Callable[[int], None]], turns: Turns
) -> Pump | None:
    """A pump over this poller, the receive buffer and the reactor's callbacks; None where there can be none."""
    if _Pump is None or not isinstance(poller, select.epoll):
        return None
    return _Pump(poller.fileno(), buffer, ready, turns)
