"""Socket readiness, level triggered: epoll if available, otherwise kqueue. Masks are epoll's on every system."""

from __future__ import annotations

import select
import sys
from typing import Any, Protocol

READ = 0x1
WRITE = 0x4
ERROR = 0x8
HANGUP = 0x10
"""Both directions are shut down. Always reported."""
PEER_LEFT = 0x2000
"""The peer has finished sending (EPOLLRDHUP). Reported if requested, even without READ."""

BATCH = 256
"""Maximum number of events in one loop iteration."""


class Poller(Protocol):
    """Methods of `select.epoll` that are used."""

    def register(self, fd: int, mask: int) -> None: ...

    def modify(self, fd: int, mask: int) -> None: ...

    def unregister(self, fd: int) -> None: ...

    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        """Return descriptor and mask of ready sockets after at most `timeout` seconds."""

    def close(self) -> None: ...


class KqueuePoller:
    """Poller on kqueue, with one filter per direction."""

    def __init__(self, module: Any = select) -> None:
        self._select = module
        self._kqueue = module.kqueue()
        self._masks: dict[int, int] = {}

    def register(self, fd: int, mask: int) -> None:
        self._masks[fd] = 0
        self.modify(fd, mask)

    def modify(self, fd: int, mask: int) -> None:
        before, self._masks[fd] = self._masks[fd], mask
        changes = []
        for direction, filter_ in (
            (READ | PEER_LEFT, self._select.KQ_FILTER_READ),
            (WRITE, self._select.KQ_FILTER_WRITE),
        ):
            if bool(mask & direction) != bool(before & direction):
                flags = self._select.KQ_EV_ADD if mask & direction else self._select.KQ_EV_DELETE
                changes.append(self._select.kevent(fd, filter_, flags))
        if changes:
            self._kqueue.control(changes, 0, 0)

    def unregister(self, fd: int) -> None:
        self.modify(fd, 0)
        del self._masks[fd]

    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        """See Poller. A filter that only watches for the end of the stream is edge-like: data alone is not reported."""
        masks: dict[int, int] = {}
        for event in self._kqueue.control(None, maxevents, timeout):
            requested_mask = self._masks.get(event.ident, 0)
            mask = self._mask(event, requested_mask)
            if mask:
                masks[event.ident] = masks.get(event.ident, 0) | mask
        return list(masks.items())

    def close(self) -> None:
        self._kqueue.close()

    def _mask(self, event: Any, requested_mask: int) -> int:
        if event.filter == self._select.KQ_FILTER_WRITE:
            return HANGUP if event.flags & self._select.KQ_EV_EOF else WRITE
        if requested_mask & READ:
            return READ  # the end of the stream is read as zero bytes
        return PEER_LEFT if event.flags & self._select.KQ_EV_EOF else 0


def new_poller() -> Poller:
    if sys.platform == "linux":
        return select.epoll()
    return KqueuePoller()
