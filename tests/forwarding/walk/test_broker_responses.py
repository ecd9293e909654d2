"""The broker's half: order of responses."""

from __future__ import annotations

import random
import struct

import pytest
from kafka_share_proxy.forwarding.walk.broker_responses import TOKEN, BrokerResponses
from kafka_share_proxy.forwarding.walk.walking import Pending
from kafka_share_proxy.wire.errors import RemoteProtocolError

from tests.support.repeated import repeated

FRAME_MAX = 100_000


class Plain:
    """Expected: passes."""

    rewrite = None


class Gathered:
    """Expected: is gathered."""

    rewrite = True


PLAIN, GATHERED = Plain(), Gathered()


def response(correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


class Walk:
    """A broker whose bytes come in pieces."""

    def __init__(self, *expected: tuple[int, object]) -> None:
        self.pending = Pending()
        for pair in expected:
            self.pending.append(pair)  # type: ignore[arg-type]
        self.frames = BrokerResponses(self.pending, FRAME_MAX)
        self.passed = b""
        self.gathered: list[int] = []
        """Sizes of the responses that do not pass."""
        self._unread_bytes = b""
        self._skip = 0

    def receive(self, data: bytes) -> None:
        data = self._unread_bytes + data
        buffer = memoryview(bytearray(data.ljust(1 << 17, b"\xee")))
        at, end = 0, len(data)
        while at < end:
            if self._skip:
                step = min(self._skip, end - at)
                self._skip -= step
                at += step
                continue
            upto = self.frames.receive(buffer, at, end)
            if upto == at:
                due = self.frames.peek(buffer, at, end)
                if due is None:
                    break
                if due.expected is TOKEN:
                    upto = self.frames.admit(due.size, at, end)
                else:
                    self.pending.popleft()
                    self.gathered.append(due.size)
                    self._skip = due.size + 4
            self.passed += bytes(buffer[at:upto])
            at = upto
        self._unread_bytes = data[at:]


EXPECTED = [(1, PLAIN), (-7, PLAIN), (3, GATHERED), (4, PLAIN), (0, TOKEN), (0, TOKEN), (5, PLAIN), (5, PLAIN)]
STREAM = (
    response(1, b"one"),
    response(-7),
    response(3, b"rewritten"),
    response(4, bytes(500)),
    struct.pack(">i", 0),
    struct.pack(">i", 3) + b"tok",
    response(5),
    response(5, b"the same id again"),
)


@pytest.mark.parametrize("size", [1, 3, 7, 8, 50, 10_000])
def test_responses_are_separated_at_every_cut(size: int) -> None:
    walk = Walk(*EXPECTED)
    data = b"".join(STREAM)
    for at in range(0, len(data), size):
        walk.receive(data[at : at + size])
    assert not walk.pending
    assert walk.gathered == [len(STREAM[2]) - 4]
    assert walk.passed == data.replace(STREAM[2], b"")


def test_an_unexpected_response_is_the_brokers_fault() -> None:
    with pytest.raises(RemoteProtocolError, match="belongs to no request"):
        Walk().receive(response(1))


def test_a_response_out_of_order_is_the_brokers_fault() -> None:
    with pytest.raises(RemoteProtocolError, match="responded to request 2, but 1 was next"):
        Walk((1, PLAIN), (2, PLAIN)).receive(response(2) + response(1))


@pytest.mark.parametrize("size", [-1, 3, FRAME_MAX + 1])
def test_an_impossible_size_is_the_brokers_fault(size: int) -> None:
    with pytest.raises(RemoteProtocolError):
        Walk((1, PLAIN)).receive(struct.pack(">ii", size, 1) + bytes(10))


def test_a_tls_alert_from_a_broker_is_named() -> None:
    """A broker's TLS port sends it in response to plain text."""
    with pytest.raises(RemoteProtocolError, match="TLS alert"):
        Walk((1, PLAIN)).receive(b"\x15\x03\x03\x00\x02\x02\x46\x00")


def test_the_entry_of_a_response_with_an_incomplete_header_stays() -> None:
    walk = Walk((1, PLAIN))
    walk.receive(response(1)[:7])
    assert list(walk.pending) == [(1, PLAIN)]


@repeated("seed", range(200))
def test_any_bytes_give_positions_or_a_protocol_error(seed: int) -> None:
    """The fuzz invariant."""
    rng = random.Random(seed)
    data = bytearray(b"".join(STREAM) if seed % 2 else rng.randbytes(300))
    for _ in range(rng.randrange(1, 5)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    walk = Walk(*EXPECTED)
    try:
        for at in range(0, len(data), step := rng.choice([1, 5, 100, 1000])):
            walk.receive(bytes(data[at : at + step]))
    except RemoteProtocolError:
        return
    assert len(walk.passed) <= len(data)
