"""The two pollers: epoll itself, and kqueue with the same calls (translated; its kernel is not available here)."""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from kafka_share_proxy.loop.polling import HANGUP, PEER_LEFT, READ, WRITE, KqueuePoller, Poller, new_poller


class Kevent(NamedTuple):
    """Fake of select.kevent."""

    ident: int
    filter: int
    flags: int


class Kernel:
    """Kqueue that records its calls and returns what the test sets."""

    def __init__(self) -> None:
        self.filters: set[tuple[int, int]] = set()
        self.events: list[Kevent] = []
        self.closed = False

    def control(self, changes: list[Kevent] | None, count: int, timeout: float | None = None) -> list[Kevent]:
        for change in changes or ():
            entry = (change.ident, change.filter)
            if change.flags == MODULE.KQ_EV_ADD:
                self.filters.add(entry)
            else:
                self.filters.remove(entry)
        return [event for event in self.events if (event.ident, event.filter) in self.filters][:count]

    def close(self) -> None:
        self.closed = True


MODULE = SimpleNamespace(
    KQ_FILTER_READ=-1, KQ_FILTER_WRITE=-2, KQ_EV_ADD=1, KQ_EV_DELETE=2, KQ_EV_EOF=0x8000, kevent=Kevent
)


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def kqueue(kernel: Kernel) -> KqueuePoller:
    module: Any = SimpleNamespace(**vars(MODULE), kqueue=lambda: kernel)
    return KqueuePoller(module)


def test_filters_follow_the_mask(kqueue: KqueuePoller, kernel: Kernel) -> None:
    kqueue.register(5, READ)
    assert kernel.filters == {(5, -1)}
    kqueue.modify(5, READ | WRITE)
    assert kernel.filters == {(5, -1), (5, -2)}
    kqueue.modify(5, WRITE)
    assert kernel.filters == {(5, -2)}
    kqueue.modify(5, PEER_LEFT)
    assert kernel.filters == {(5, -1)}
    kqueue.unregister(5)
    assert kernel.filters == set()


def test_both_directions_of_one_descriptor_are_one_event(kqueue: KqueuePoller, kernel: Kernel) -> None:
    kqueue.register(5, READ | WRITE)
    kernel.events = [Kevent(5, -1, 0), Kevent(5, -2, 0)]
    assert kqueue.poll(1.0, 256) == [(5, READ | WRITE)]


def test_the_end_of_the_stream_is_read_where_reading_is_on(kqueue: KqueuePoller, kernel: Kernel) -> None:
    kqueue.register(5, READ)
    kernel.events = [Kevent(5, -1, MODULE.KQ_EV_EOF)]
    assert kqueue.poll(1.0, 256) == [(5, READ)]


def test_a_muted_client_is_reported_when_it_leaves_and_not_when_it_sends(kqueue: KqueuePoller, kernel: Kernel) -> None:
    kqueue.register(5, PEER_LEFT)
    kernel.events = [Kevent(5, -1, 0)]
    assert kqueue.poll(0.0, 256) == []
    kernel.events = [Kevent(5, -1, MODULE.KQ_EV_EOF)]
    assert kqueue.poll(0.0, 256) == [(5, PEER_LEFT)]


def test_peer_that_closed_both_directions_is_a_hang_up(kqueue: KqueuePoller, kernel: Kernel) -> None:
    kqueue.register(5, WRITE)
    kernel.events = [Kevent(5, -2, MODULE.KQ_EV_EOF)]
    assert kqueue.poll(0.0, 256) == [(5, HANGUP)]
    kqueue.close()
    assert kernel.closed


@pytest.fixture
def poller() -> Iterator[Poller]:
    selected_poller = new_poller()
    yield selected_poller
    selected_poller.close()


def test_a_muted_descriptor_reports_that_its_peer_left(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    """No reading, and yet the end is noticed (forwarding/README.md rule 21)."""
    poller.register(pair[0].fileno(), PEER_LEFT)
    pair[1].send(b"not asked for")
    assert poller.poll(0.0, 256) == []
    pair[1].shutdown(socket.SHUT_WR)
    ((fd, mask),) = poller.poll(1.0, 256)
    assert (fd, mask & PEER_LEFT) == (pair[0].fileno(), PEER_LEFT)


@pytest.mark.skipif(sys.platform != "linux", reason="epoll is Linux's")
def test_masks_are_epolls() -> None:
    assert (READ, WRITE, HANGUP, PEER_LEFT) == (
        select.EPOLLIN,
        select.EPOLLOUT,
        select.EPOLLHUP,
        select.EPOLLRDHUP,
    )
    assert isinstance(new_poller(), select.epoll)
