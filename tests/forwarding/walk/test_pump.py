"""The fast path in C: what passes without Python, and what is handed over."""

from __future__ import annotations

import errno
import gc
import os
import resource
import select
import socket
import struct
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
from kafka_share_proxy.forwarding.dispatch.request_inspection import SILENT
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.forwarding.walk.walking import Pending, RequestWalk, ResponseWalk, Table
from kafka_share_proxy.loop.interfaces import Request
from kafka_share_proxy.loop.iterations import Iterations
from kafka_share_proxy.loop.polling import READ

from tests.bench.pump_instructions import pump_function

pytest.importorskip("kafka_share_proxy.forwarding.walk._pump", reason="the pump could not be built in C here")

BUFFER = 4096


class Passes:
    rewrite = None


class Rewritten:
    """Knows one response already."""

    def __init__(self) -> None:
        self.known = {b"kafka": (struct.pack(">i", 9), b"proxy"), b"same": (b"", b"")}

    def __call__(self, frame: memoryview, context: object) -> bytes | None:
        raise AssertionError("asked although it is known")


class ResponseReceiver:
    rewrite = Rewritten()


PLAIN, RESPONDED = Passes(), ResponseReceiver()
TABLE = Table({struct.pack(">hh", 1, 11): PLAIN, struct.pack(">hh", 3, 9): RESPONDED}, {}, SILENT)


class Way:
    """Events of a walk; mixed into both kinds."""

    reported: list[tuple[Any, ...]]
    trouble: Exception | None = None
    passes = False
    on_walked: Callable[[], object] | None = None

    def ended(self, code: int, zero: int) -> None:
        self.reported.append(("ended", code, zero))

    def walked(self, upto: int, count: int) -> bool:
        self.reported.append(("walked", upto, count))
        if self.on_walked is not None:
            self.on_walked()
        if self.trouble is not None:
            raise self.trouble
        return self.passes

    def kept(self, sent: int, data: bytes) -> None:
        self.reported.append(("kept", sent, data))

    def sent(self, sent: int, count: int) -> None:
        self.reported.append(("sent", sent, count))

    def failed(self, error: Exception) -> None:
        self.reported.append(("failed", str(error)))


class Up(Way, RequestWalk):
    def __init__(self, pending: Pending) -> None:
        super().__init__(pending, TABLE, 10_000)
        self.reported = []


class Down(Way, ResponseWalk):
    def __init__(self, pending: Pending) -> None:
        super().__init__(pending, 100_000)
        self.reported = []


class World:
    """A client and a broker with the pump between them."""

    def __init__(self, buffer_bytes: int = BUFFER, *queues: tuple[list[object], list[object]]) -> None:
        self.epoll = select.epoll()
        self.buffer = memoryview(bytearray(buffer_bytes))
        self.masks: list[int] = []
        self.ready = {}
        self.iterations = Iterations()
        pump = new_pump(self.epoll, self.buffer, self.ready, self.iterations, *queues)
        assert pump is not None
        self.pump = pump
        self.client, inner = socket.socketpair()
        self.broker, outer = socket.socketpair()
        self.ends = (inner, outer)
        pending = Pending()
        self.up, self.down = Up(pending), Down(pending)
        for sock, walk, other in ((inner, self.up, outer), (outer, self.down, inner)):
            sock.setblocking(False)
            self.epoll.register(sock.fileno(), READ)
            pump.connect(sock.fileno(), walk, other.fileno())
            self.ready[sock.fileno()] = self.masks.append
            walk.flows = True
        for sock in (self.client, self.broker):
            sock.settimeout(5)

    def iterate(self) -> None:
        self.pump.iterate(0.05)

    def close(self) -> None:
        for sock in (self.client, self.broker, *self.ends):
            sock.close()
        self.epoll.close()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def request(key: int, version: int, correlation_id: int, body: bytes = b"") -> bytes:
    head = struct.pack(">hhi", key, version, correlation_id)
    return struct.pack(">i", len(head) + len(body)) + head + body


def response(correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


def test_the_benches_count_a_function_that_the_pump_has() -> None:
    """A name that callgrind does not find counts nothing."""
    checkout = Path(__file__).resolve().parents[3]
    source = checkout / "proxy" / "kafka_share_proxy" / "forwarding" / "walk" / "_pump.c"
    assert f"static PyObject *{pump_function(checkout)}(" in source.read_text(encoding="utf-8")


def test_what_passes_needs_no_python(world: World) -> None:
    """Requests go up and responses down; nothing is called."""
    for number in range(3):
        requested = request(1, 11, number, b"fetch")
        world.client.sendall(requested)
        world.iterate()
        assert world.broker.recv(100) == requested
        reported = response(number, b"records")
        world.broker.sendall(reported)
        world.iterate()
        assert world.client.recv(100) == reported
    assert (world.up.reported, world.down.reported, world.masks) == ([], [], [])
    assert (world.up.bytes, world.down.bytes, len(world.up.pending)) == (3 * 17, 3 * 15, 0)


def test_a_response_rewritten_before_is_sent_with_the_same_bytes(world: World) -> None:
    """With the correlation id of this one; one that was left as it is, as it is."""
    world.client.sendall(request(3, 9, 7) + request(3, 9, 8) + request(3, 9, 9))
    world.iterate()
    for body, reported in (
        (response(7, b"kafka"), response(7, b"proxy")),
        (response(8, b"same"), response(8, b"same")),
    ):
        world.broker.sendall(body)
        world.iterate()
        assert world.client.recv(100) == reported
    assert world.down.reported == []
    world.broker.sendall(response(9, b"new"))
    world.iterate()
    assert world.down.reported == [("walked", 0, 11)]
    assert bytes(world.buffer[:11]) == response(9, b"new")


def test_a_response_is_no_longer_rewritten_as_before_once_that_is_forgotten(world: World) -> None:
    """C keeps the bytes that it found last, and must not find them without the dict."""
    known = RESPONDED.rewrite.known
    remembered = dict(known)
    try:
        for number in range(2):
            world.client.sendall(request(3, 9, number))
            world.iterate()
            world.broker.sendall(response(number, b"kafka"))
            world.iterate()
            assert world.client.recv(100) == response(number, b"proxy")
        known[b"kafka"] = (struct.pack(">i", 8), b"port")
        world.client.sendall(request(3, 9, 2) + request(3, 9, 3))
        world.iterate()
        world.broker.sendall(response(2, b"kafka"))
        world.iterate()
        assert world.client.recv(100) == response(2, b"port")
        known.clear()
        world.broker.sendall(response(3, b"kafka"))
        world.iterate()
        assert world.down.reported == [("walked", 0, 13)]
    finally:
        known.update(remembered)


@pytest.mark.parametrize("size", [16_000, 20_000], ids=["copied", "in pieces"])
def test_a_large_rewritten_response_is_sent_whole(size: int) -> None:
    world = World(buffer_bytes=32_768)
    body, rest = bytes([1]) * size, bytes([2]) * size
    known = RESPONDED.rewrite.known
    known[body] = (struct.pack(">i", 4 + size), rest)
    try:
        for number in range(2):
            world.client.sendall(request(3, 9, number))
            world.iterate()
            world.broker.sendall(response(number, body))
            world.iterate()
            assert world.client.recv(2 * size, socket.MSG_WAITALL | socket.MSG_DONTWAIT) == response(number, rest)
        assert world.down.reported == []
    finally:
        del known[body]
        world.close()


def test_what_does_not_pass_is_handed_over_with_the_bytes(world: World) -> None:
    """Up to where it passes is said; nothing was sent of it."""
    first, second = request(1, 11, 1), request(99, 0, 2)
    world.client.sendall(first + second)
    world.iterate()
    assert world.up.reported == [("walked", len(first), len(first + second))]
    assert bytes(world.buffer[: len(first)]) == first
    assert world.up.pending[0] == (1, PLAIN)


class Expecting:
    """Pending entry whose response may be the client's (served.interfaces.ExpectedResponse)."""

    rewrite = "on_response"

    def __init__(self, outcome: bool | Exception) -> None:
        self.outcome = outcome
        self.frames: list[bytes] = []

    def on_response(self, frame: bytes) -> bool:
        self.frames.append(frame)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.mark.parametrize("is_clients", [True, False])
def test_response_that_arrives_whole_and_alone_is_taken_by_what_expects_it(world: World, is_clients: bool) -> None:
    expecting = Expecting(is_clients)
    world.up.pending.append((7, expecting))
    world.broker.sendall(response(7, b"body"))
    world.iterate()
    assert expecting.frames == [response(7, b"body")]
    assert (len(world.up.pending), world.down.reported) == (0, [])
    if is_clients:
        assert world.client.recv(100) == response(7, b"body")
    assert world.down.bytes == (len(response(7, b"body")) if is_clients else 0)


@pytest.mark.parametrize("arriving", [response(7, b"body")[:-1], response(7) + response(8), response(8, b"body")])
def test_expected_response_in_pieces_or_among_others_is_handed_over(world: World, arriving: bytes) -> None:
    expecting = Expecting(True)
    world.up.pending.append((7, expecting))
    world.up.pending.append((8, PLAIN))
    world.broker.sendall(arriving)
    world.iterate()
    assert expecting.frames == []
    assert world.down.reported == [("walked", 0, len(arriving))]
    assert len(world.up.pending) == 2


def test_exception_of_what_expects_a_response_ends_its_way(world: World) -> None:
    world.up.pending.append((7, Expecting(ValueError("no commit"))))
    world.broker.sendall(response(7))
    world.iterate()
    assert world.down.reported == [("failed", "no commit")]
    assert len(world.up.pending) == 0


@pytest.mark.parametrize("left", ["nothing", "call", "later call", "alarm", "doing"])
def test_iteration_continues_after_a_call_that_has_left_nothing(left: str) -> None:
    """Otherwise the reactor has to continue: with calls, an earlier alarm, or the request that was in progress."""
    calls, later_calls = list[object](), list[object]()
    world = World(BUFFER, (calls, later_calls))

    def leave() -> None:
        world.up.on_walked = None
        world.broker.sendall(response(1))  # nothing expects it
        if left == "call":
            calls.append(print)
        elif left == "later call":
            later_calls.append(print)
        elif left == "alarm":
            world.pump.interrupt()
        elif left == "doing":
            world.iterations.doing = None, cast(Request, object())

    world.up.on_walked = leave
    frame = request(99, 0, 1)
    world.client.sendall(frame)
    world.iterate()
    assert world.up.reported == [("walked", 0, len(frame))]
    assert world.down.reported == ([("walked", 0, len(response(1)))] if left == "nothing" else [])
    world.close()


def test_a_way_in_which_something_is_goes_by_its_callback(world: World) -> None:
    """So does a socket without a way, and one that was forgotten."""
    world.up.flows = False
    world.client.sendall(b"x")
    world.iterate()
    assert (world.masks, world.up.reported) == ([READ], [])
    world.up.flows = True
    world.pump.forget(world.ends[0].fileno())
    world.pump.forget(10_000)
    world.iterate()
    assert (world.masks, world.up.reported) == ([READ, READ], [])


def test_the_end_of_a_stream_is_reported(world: World) -> None:
    """The stream ends in order, or by a reset."""
    world.client.shutdown(socket.SHUT_WR)
    world.iterate()
    assert world.up.reported[:1] == [("ended", 0, 0)]


def test_unsent_bytes_are_reported(world: World) -> None:
    """How much it took; the bytes stand in the buffer."""
    world.ends[1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    frame = request(1, 11, 1, bytes(2000))
    for _ in range(100):
        world.client.sendall(frame)
        world.iterate()
        if world.up.reported:
            break
    kind, sent, count = world.up.reported[0]
    assert (kind, count) == ("sent", len(frame))
    assert 0 <= sent < count
    world.broker.close()
    world.up.reported.clear()
    world.client.sendall(frame)
    world.iterate()
    assert world.up.reported[0] in (("sent", -errno.EPIPE, len(frame)), ("sent", -errno.ECONNRESET, len(frame)))


def test_too_many_in_flight_is_reported(world: World) -> None:
    """When all was sent."""
    world.up.in_flight_max = 2
    frames = b"".join(request(1, 11, n) for n in range(3))
    world.client.sendall(frames)
    world.iterate()
    assert world.up.reported == [("sent", len(frames), len(frames))]


def test_trouble_is_reported_to_its_direction(world: World) -> None:
    """And touches no other."""
    world.up.trouble = ValueError("no request")
    world.client.sendall(request(99, 0, 2))
    world.iterate()
    assert world.up.reported[-1] == ("failed", "no request")


def test_a_base_exception_ends_the_iteration(world: World) -> None:
    world.up.trouble = KeyboardInterrupt()  # type: ignore[assignment]
    world.client.sendall(request(99, 0, 2))
    with pytest.raises(KeyboardInterrupt):
        world.iterate()


def test_an_iteration_ends_when_its_time_is_over(world: World) -> None:
    """However much passes meanwhile. An alarm of an earlier one may end it before."""
    iterations, end = 0, time.monotonic() + 0.05
    while (wait_s := end - time.monotonic()) > 0:
        world.pump.iterate(wait_s)
        iterations += 1
    assert iterations <= 3
    assert time.monotonic() < end + 5


@contextmanager
def no_more_files() -> Iterator[None]:
    """Let no file be opened."""
    limits, lowest = resource.getrlimit(resource.RLIMIT_NOFILE), os.dup(0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        os.close(lowest)


@pytest.mark.parametrize("files", [nullcontext, no_more_files])
def test_each_iteration_ends_at_its_own_time(world: World, files: Callable[[], AbstractContextManager[None]]) -> None:
    """After a longer one that an event ended, too, and without the alarm, which takes a descriptor.

    An alarm of an earlier iteration may end it before.
    """
    with files():
        pump = new_pump(world.epoll, world.buffer, world.ready, Iterations())
    assert pump is not None
    world.client.sendall(b"x")
    pump.iterate(60.0)
    assert world.masks == [READ]
    world.ends[0].recv(1)
    for wait_s in (0.02, 0.0, 0.05, 0.02):
        end = time.monotonic() + wait_s
        pump.iterate(wait_s)
        while time.monotonic() < end:
            pump.iterate(end - time.monotonic())
        assert time.monotonic() < end + 5
    assert world.masks == [READ]


def test_alarm_of_a_wait_that_an_exception_ended_is_not_lost(world: World) -> None:
    """Its event follows that of the request."""
    world.client.sendall(request(99, 0, 1))
    world.pump.iterate(0.02)  # sets the alarm, and ends before it
    world.up.trouble = KeyboardInterrupt()  # type: ignore[assignment]
    world.client.sendall(request(99, 0, 2))
    time.sleep(0.03)
    with pytest.raises(KeyboardInterrupt):
        world.pump.iterate(1.0)
    world.pump.iterate(1.0)
    world.pump.iterate(0.02)


def alarms() -> int:
    """Return the number of open timers."""
    gc.collect()
    links = [each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return sum("timerfd" in str(link) for link in links)


def test_a_pump_closes_its_alarm() -> None:
    before = alarms()
    world = World()
    assert alarms() == before + 1
    world.close()
    del world
    assert alarms() == before


def test_a_pump_takes_only_walks(world: World) -> None:
    with pytest.raises(ValueError, match="connect"):
        world.pump.connect(3, object(), 4)  # type: ignore[arg-type]


def test_nothing_is_kept_of_what_was_forgotten(world: World) -> None:
    """Neither the walk nor what waited in it."""
    walk = Up(Pending())
    lost = weakref.ref(walk)
    world.pump.connect(900, walk, 901)
    world.pump.forget(900)
    del walk
    gc.collect()
    assert lost() is None


def test_bytes_that_python_lets_pass_are_forwarded(world: World) -> None:
    """With all that the walk stopped at, and counted once."""
    frames = request(1, 11, 1) + request(99, 0, 2)
    world.up.passes = True
    world.client.sendall(frames)
    world.iterate()
    assert world.up.reported == [("walked", len(frames) // 2, len(frames))]
    assert world.broker.recv(100) == frames
    assert world.up.bytes == len(frames)


def test_requests_for_the_end_of_the_wait_follow_all_that_passes(world: World) -> None:
    """Two of them in their order."""
    fd = world.ends[0].fileno()
    world.up.on_walked = lambda: [world.pump.send_later(fd, data) for data in (b"first", b"second")]
    world.up.passes = True
    frame = request(99, 0, 2)
    world.client.sendall(frame)
    world.iterate()
    assert world.broker.recv(100) == frame + b"firstsecond"


def test_request_of_a_descriptor_that_is_forgotten_is_not_sent(world: World) -> None:
    fd = world.ends[0].fileno()

    def leave() -> None:
        world.pump.send_later(fd, b"data")
        world.pump.forget(fd)

    world.up.on_walked = leave
    world.client.sendall(request(99, 0, 2))
    world.iterate()
    world.broker.setblocking(False)
    with pytest.raises(BlockingIOError):
        world.broker.recv(100)
    with pytest.raises(ValueError, match="send_later"):
        world.pump.send_later(fd, b"data")


def test_rest_of_a_request_that_the_broker_does_not_accept_is_kept(world: World) -> None:
    world.ends[1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    data = bytes(1 << 20)
    world.up.on_walked = lambda: world.pump.send_later(world.ends[0].fileno(), data)
    world.client.sendall(request(99, 0, 2))
    world.iterate()
    kind, sent, unsent_data = world.up.reported[-1]
    assert (kind, unsent_data) == ("kept", data)
    assert 0 < sent < len(data)
    world.broker.close()
    world.client.sendall(request(99, 0, 2))
    world.iterate()
    assert world.up.reported[-1] in (("kept", -errno.EPIPE, data), ("kept", -errno.ECONNRESET, data))


def test_request_is_sent_in_the_next_wait_after_an_exception_that_ends_this_one(world: World) -> None:
    world.up.on_walked = lambda: world.pump.send_later(world.ends[0].fileno(), b"data")
    world.up.trouble = KeyboardInterrupt()  # type: ignore[assignment]
    world.client.sendall(request(99, 0, 2))
    with pytest.raises(KeyboardInterrupt):
        world.iterate()
    world.iterate()
    assert world.broker.recv(100) == b"data"


def test_iteration_ends_after_the_rest_of_a_request_of_an_earlier_iteration_is_kept(world: World) -> None:
    """The end of a connection that `kept` has planned must not wait for the next event."""
    world.ends[1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    world.up.on_walked = lambda: world.pump.send_later(world.ends[0].fileno(), bytes(1 << 20))
    world.up.trouble = KeyboardInterrupt()  # type: ignore[assignment]
    world.client.sendall(request(99, 0, 2))
    with pytest.raises(KeyboardInterrupt):
        world.iterate()
    world.up.reported.clear()
    world.up.on_walked = world.up.trouble = None
    world.client.sendall(request(99, 0, 2))
    world.iterate()
    assert [reported[0] for reported in world.up.reported] == ["kept"]
    world.iterate()
    assert [reported[0] for reported in world.up.reported] == ["kept", "walked"]


def test_nothing_is_kept_of_a_pump_with_requests() -> None:
    world = World()
    walk = Up(Pending())
    lost = weakref.ref(walk)
    world.pump.connect(900, walk, 901)
    world.pump.send_later(900, b"data")
    world.close()
    del walk, world
    gc.collect()
    assert lost() is None
