"""Bytes that a peer has not accepted yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from kafka_share_proxy.forwarding.peer_socket import FAREWELL_S, PIECES_MAX, Linger, PeerSocket
from kafka_share_proxy.loop.interfaces import Data
from kafka_share_proxy.loop.polling import ERROR, READ, WRITE
from kafka_share_proxy.wire.codec.frames import Pieces


class Kernel:
    """A transport that accepts `room` bytes and then no more."""

    def __init__(self, room: int = 0) -> None:
        self.room = room
        self.sent_bytes = b""
        self.masks: list[int] = []
        self.closed = 0
        self.parted = 0
        self.dropped: list[bool] = []
        """Results of the next calls of `discard_received`, in order."""
        self.ready: Callable[[int], None] | None = None

    def send(self, data: Data) -> int:
        if self.room <= 0:
            raise BlockingIOError
        piece = bytes(data[: self.room])
        self.room -= len(piece)
        self.sent_bytes += piece
        return len(piece)

    def sendmsg(self, pieces: Sequence[Data]) -> int:
        return self.send(b"".join(pieces))

    def recv_into(self, _buffer: memoryview) -> int:
        raise BlockingIOError

    def attach(self, ready: Callable[[int], None], mask: int) -> None:
        self.ready = ready
        self.masks.append(mask)

    def want(self, mask: int) -> None:
        self.masks.append(mask)

    def send_eof(self) -> None:
        self.parted += 1

    def discard_received(self) -> bool:
        return self.dropped.pop(0)

    def close(self) -> None:
        self.closed += 1


def test_what_the_kernel_takes_is_not_kept() -> None:
    kernel = Kernel(100)
    peer = PeerSocket(kernel)
    peer.write(b"hello")
    assert (kernel.sent_bytes, peer.has_unsent, peer.unsent) == (b"hello", False, 0)


def test_the_rest_waits_in_order_after_what_waited_before() -> None:
    kernel = Kernel(3)
    peer = PeerSocket(kernel)
    peer.write(b"hello")
    peer.write(b" world")
    assert (kernel.sent_bytes, peer.unsent) == (b"hel", 8)
    kernel.room = 4
    peer.flush()
    assert (kernel.sent_bytes, peer.unsent) == (b"hello w", 4)
    kernel.room = 100
    peer.flush()
    assert (kernel.sent_bytes, peer.has_unsent) == (b"hello world", False)


def pieces() -> Pieces:
    return Pieces([b"head", memoryview(b"x" * 100), b"", b"tail"])


def test_pieces_go_out_in_one_call_and_nothing_is_kept() -> None:
    kernel = Kernel(1000)
    peer = PeerSocket(kernel)
    peer.write(pieces())
    assert (kernel.sent_bytes, peer.has_unsent) == (bytes(pieces()), False)


@pytest.mark.parametrize("room", [0, 3, 4, 50, 107])
def test_of_pieces_too_the_rest_waits(room: int) -> None:
    """Wherever the kernel stops."""
    kernel = Kernel(room)
    peer = PeerSocket(kernel)
    peer.write(pieces())
    peer.write(b"next")
    assert peer.unsent == len(bytes(pieces())) + 4 - room
    kernel.room = 1000
    peer.flush()
    assert (kernel.sent_bytes, peer.has_unsent) == (bytes(pieces()) + b"next", False)


def test_pieces_wait_after_what_waits_and_for_a_socket() -> None:
    peer = PeerSocket()
    peer.write(b"first")
    peer.write(pieces())
    kernel = Kernel(1000)
    peer.open(kernel)
    peer.flush()
    assert kernel.sent_bytes == b"first" + bytes(pieces())


def test_more_pieces_than_one_call_takes_go_out_all_the_same() -> None:
    kernel = Kernel(10_000)
    many = Pieces([b"%04d" % number for number in range(PIECES_MAX + 1)])
    peer = PeerSocket(kernel)
    peer.write(many)
    assert (kernel.sent_bytes, peer.has_unsent) == (bytes(many), False)


def test_what_waits_is_a_copy() -> None:
    """The receive buffer is reused immediately."""
    kernel = Kernel(0)
    peer = PeerSocket(kernel)
    buffer = bytearray(b"abc")
    peer.write(memoryview(buffer))
    buffer[:] = b"xyz"
    kernel.room = 10
    peer.flush()
    assert kernel.sent_bytes == b"abc"


def test_bytes_wait_for_a_socket_that_is_yet_to_come() -> None:
    peer = PeerSocket()
    peer.write(b"early")
    assert not peer.is_open
    kernel = Kernel(100)
    peer.open(kernel)
    peer.flush()
    assert kernel.sent_bytes == b"early"


def test_progress_grows_only_when_waiting_bytes_are_taken() -> None:
    kernel = Kernel(2)
    peer = PeerSocket(kernel)
    peer.write(b"abcdef")
    assert peer.progress == 0
    peer.flush()
    assert peer.progress == 0
    kernel.room = 1
    peer.flush()
    assert peer.progress == 1


def test_an_error_of_the_socket_passes_through() -> None:
    class Lost(Kernel):
        def send(self, data: Data) -> int:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        PeerSocket(Lost()).write(b"x")


def test_discarded_bytes_are_never_sent() -> None:
    kernel = Kernel(0)
    peer = PeerSocket(kernel)
    peer.write(b"x")
    peer.discard()
    kernel.room = 10
    peer.flush()
    assert kernel.sent_bytes == b""


def lingering(kernel: Kernel, ended: list[Linger]) -> Linger:
    peer = PeerSocket(kernel)
    peer.write(b"last words")
    linger = Linger(peer, 30.0, lambda: 10.0, ended.append)
    linger.proceed()
    return linger


def test_the_last_bytes_are_sent_and_the_peer_ends_first() -> None:
    kernel, ended = Kernel(0), list[Linger]()
    linger = lingering(kernel, ended)
    assert kernel.masks[-1] == WRITE
    kernel.room = 4
    linger.ready(WRITE)
    assert (ended, kernel.closed) == ([], 0)
    kernel.room = 100
    linger.ready(WRITE)
    assert kernel.sent_bytes == b"last words"
    assert (ended, kernel.closed, kernel.parted, kernel.masks[-1]) == ([], 0, 1, READ)
    kernel.dropped = [False, True]
    linger.ready(READ)
    assert ended == []
    linger.ready(READ)
    assert (ended, kernel.closed, kernel.parted) == ([linger], 1, 1)


def test_a_peer_that_does_not_end_has_a_moment_only() -> None:
    """Counted from the notification; with nothing left to send that is immediate."""
    kernel, ended = Kernel(100), list[Linger]()
    linger = Linger(PeerSocket(kernel), 30.0, lambda: 10.0, ended.append)
    linger.proceed()
    assert (kernel.parted, kernel.masks[-1], linger.deadline) == (1, READ, 10.0 + FAREWELL_S)
    assert not linger.has_unsent


def test_an_unwritable_peer_is_left() -> None:
    """The socket is closed."""

    class Lost(Kernel):
        def send_eof(self) -> None:
            raise BrokenPipeError

    kernel, ended = Lost(100), list[Linger]()
    linger = Linger(PeerSocket(kernel), 30.0, lambda: 10.0, ended.append)
    linger.proceed()
    assert (ended, kernel.closed) == ([linger], 1)


@pytest.mark.parametrize("end", ["error", "failed", "deadline"])
def test_it_ends_once(end: str) -> None:
    kernel, ended = Kernel(0), list[Linger]()
    linger = lingering(kernel, ended)
    for _ in range(2):
        if end == "error":
            linger.ready(ERROR)
        elif end == "failed":
            linger.failed(BrokenPipeError())
        else:
            linger.end()
    assert ended == [linger]
    assert kernel.sent_bytes == b""
