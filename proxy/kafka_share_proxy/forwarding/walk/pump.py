"""The fast path of every connection and the wait of the loop, in C (`_pump.c`) if it was built.

Reason: the interpreter has left the caches between two requests. With a real broker, pinned to one core, a forwarded
small request took 2.1 times the CPU of a relay in C without the pump.

How it works: each walk is fed by one descriptor. While its `flows` is set, arriving bytes are walked, and if all of
them can be forwarded, sent without any Python. Otherwise a method of the direction is called (`ClientToBroker`,
`BrokerToClient`):

- `ended(code, _)`: the stream ended (0) or failed (errno).
- `walked(upto, count)`: of `count` bytes in the receive buffer, the walk stopped at `upto`, before the last of them.
- `sent(sent, count)`: of `count` forwarded bytes, `sent` were accepted; a negative number is -errno. Also called when
  all were accepted but more requests wait for responses than `in_flight_max`.

Errors go to `failed` (faults.FaultOwner).
"""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafka_share_proxy.loop.interfaces import Pump
from kafka_share_proxy.loop.polling import Poller
from kafka_share_proxy.loop.turns import Turns

if TYPE_CHECKING:
    _Pump: Callable[[int, memoryview, Mapping[int, Callable[[int], None]], Turns], Pump] | None
else:
    try:
        from kafka_share_proxy.forwarding.walk._pump import Pump as _Pump
    except ImportError:
        _Pump = None


def new_pump(
    poller: Poller, buffer: memoryview, ready: Mapping[int, Callable[[int], None]], turns: Turns
) -> Pump | None:
    """None if the pump cannot be used."""
    if _Pump is None or not isinstance(poller, select.epoll):
        return None
    return _Pump(poller.fileno(), buffer, ready, turns)
