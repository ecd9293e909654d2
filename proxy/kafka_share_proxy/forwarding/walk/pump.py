"""The fast path of every connection and the wait of the loop, in C (`_pump.c`) if it was built.

Reason: the interpreter has left the caches between two requests. With a real broker, pinned to one core, a forwarded
small request took 2.1 times the CPU of a relay in C without the pump.

How it works: each walk is fed by one descriptor. While its `flows` is set, arriving bytes are walked, and if all of
them can be forwarded, sent without any Python. Otherwise a method of the direction is called (`ClientToBroker`,
`BrokerToClient`):

- `ended(code, _)`: the stream ended (0) or failed (errno).
- `on_response(frame)` of what expects the response (`served.interfaces.ExpectedResponse`), if it arrived whole and
  alone. True: it is forwarded unchanged.
- `walked(upto, count)`: of `count` bytes in the receive buffer, the walk stopped at `upto`, before the last of them.
  True: all are forwarded unchanged after all.
- `kept(sent, data)`: of the bytes of `send_later`, `sent` were accepted, but not all; a negative number is -errno.
- `sent(sent, count)`: of `count` forwarded bytes, `sent` were accepted; a negative number is -errno. Also called when
  all were accepted but more requests wait for responses than `in_flight_max`.

Errors go to `failed` (faults.FaultOwner).
"""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping, Sized
from typing import TYPE_CHECKING

from kafka_share_proxy.forwarding.walk import walking
from kafka_share_proxy.loop.interfaces import Pump
from kafka_share_proxy.loop.iterations import Iterations
from kafka_share_proxy.loop.polling import Poller
from kafka_share_proxy.wire import kernels

BUILT_VERSION = 7
"""`VERSION` of the extension that matches this file. Another one is not used."""

if TYPE_CHECKING:
    KERNEL = kernels.choose("forwarding.walk._pump", None, BUILT_VERSION)
    _Pump: Callable[..., Pump]
else:
    try:
        from kafka_share_proxy.forwarding.walk import _pump
    except ImportError:  # no compiler was available at installation
        _pump = None

    KERNEL = kernels.choose("forwarding.walk._pump", _pump, BUILT_VERSION)
    _Pump = _pump.Pump if KERNEL == "c" else None


def new_pump(
    poller: Poller,
    buffer: memoryview,
    ready: Mapping[int, Callable[[int], None]],
    iterations: Iterations,
    *queues: tuple[Sized, Sized],
) -> Pump | None:
    """Return a pump in C, or None if it cannot be used here.

    `queues`: calls that follow the iteration. While both are empty it continues after a call of a direction.
    """
    if KERNEL == "python" or walking.KERNEL == "python" or not isinstance(poller, select.epoll):
        return None
    return _Pump(poller.fileno(), buffer, ready, iterations, *queues)
