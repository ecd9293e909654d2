"""The client's half: where requests begin and which of them pass."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass

import pytest
from kafka_share_proxy.forwarding.dispatch.request_inspection import AcksMatch, inspect_to_amend, inspect_unserved
from kafka_share_proxy.forwarding.walk.client_requests import NOTHING_PASSES, ClientRequests, Passing
from kafka_share_proxy.forwarding.walk.walking import Pending
from kafka_share_proxy.wire.errors import RemoteProtocolError

from tests.support.repeated import repeated

FRAME_MAX = 100_000
BUFFER = 1 << 17


@dataclass(frozen=True)
class Named:
    """Expected: a response that passes."""

    name: str
    rewrite: object | None = None


FETCH = Named("fetch")
PRODUCE = Named("produce")
PRODUCED = {struct.pack(">hh", 0, version): AcksMatch(version, PRODUCE) for version in (3, 7, 9, 11)}
WHOLE = {struct.pack(">hh", 78, 1): inspect_to_amend(lambda frame: amend(frame), Named("whole"))}
PASSING = Passing({struct.pack(">hh", 1, 11): FETCH}, PRODUCED | WHOLE, frozenset(PRODUCED))


def amend(frame: memoryview) -> Named | None:
    """Writes nines over the body; a body that begins with x is expected as something else."""
    expected_route = Named("x") if frame[8:9] == b"x" else None
    frame[8:] = b"9" * (len(frame) - 8)
    return expected_route


def request(key: int, version: int, correlation_id: int, body: bytes = b"") -> bytes:
    head = struct.pack(">hhi", key, version, correlation_id)
    return struct.pack(">i", len(head) + len(body)) + head + body


def produce(
    version: int, correlation_id: int, acks: int, client_id: bytes = b"me", transactional_id: bytes | None = None
) -> bytes:
    body = struct.pack(">h", len(client_id)) + client_id
    if version >= 9:
        body += b"\x01\x07\x02ab"  # one tagged field in the header
        body += b"\x00" if transactional_id is None else bytes([len(transactional_id) + 1]) + transactional_id
    elif version >= 3:
        body += b"\xff\xff" if transactional_id is None else struct.pack(">h", len(transactional_id)) + transactional_id
    return request(0, version, correlation_id, body + struct.pack(">hi", acks, 30_000) + bytes(300))


class Walk:
    """A client whose bytes come in pieces, as a connection would walk them."""

    def __init__(self) -> None:
        self.pending = Pending()
        self.frames = ClientRequests(self.pending, PASSING, FRAME_MAX)
        self.passed = b""
        self.stopped: list[bytes] = []
        """Names of frames that do not pass (they are skipped whole)."""
        self._unread_bytes = b""
        self._skip = 0

    def receive(self, data: bytes) -> None:
        data = self._unread_bytes + data
        buffer = memoryview(bytearray(data.ljust(BUFFER, b"\xee")))
        at, end = 0, len(data)
        while at < end:
            if self._skip:
                step = min(self._skip, end - at)
                self._skip -= step
                at += step
                continue
            upto = self.frames.receive(buffer, at, end)
            self.passed += bytes(buffer[at:upto])
            if upto > at:
                at = upto
                continue
            head = self.frames.peek(buffer, at, end)
            if head is None:
                break
            self.stopped.append(head.name)
            self._skip = head.size + 4
        self._unread_bytes = data[at:]


STREAM = b"".join(
    (
        request(1, 11, 5, b"fetch"),
        produce(7, 6, 1),
        produce(7, 7, 0),
        request(3, 9, 8, b"metadata: not in the table"),
        produce(9, -3, -1, transactional_id=b"tx"),
        produce(11, 10, 0),
        request(1, 11, 11),
        produce(3, 12, 0),
        produce(3, 13, 1, client_id=b""),
    )
)
RESPONDED = [(5, FETCH), (6, PRODUCE), (-3, PRODUCE), (11, FETCH), (13, PRODUCE)]


def test_frames_of_the_table_pass_and_the_others_stop_the_walk() -> None:
    walk = Walk()
    walk.receive(STREAM)
    assert list(walk.pending) == RESPONDED
    assert walk.stopped == [struct.pack(">hh", 3, 9)]
    assert walk.passed == STREAM.replace(request(3, 9, 8, b"metadata: not in the table"), b"")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 11, 64])
def test_cut_into_pieces_it_is_the_same(size: int) -> None:
    whole, pieces = Walk(), Walk()
    whole.receive(STREAM)
    for at in range(0, len(STREAM), size):
        pieces.receive(STREAM[at : at + size])
    halves = (list(pieces.pending), pieces.stopped, pieces.passed)
    assert halves == (list(whole.pending), whole.stopped, whole.passed)


def test_a_head_that_is_not_whole_passes_nothing_of_its_frame() -> None:
    walk = Walk()
    walk.receive(request(1, 11, 5)[:11])
    assert walk.passed == b""
    assert not walk.pending


def test_the_body_of_a_frame_is_forwarded_as_it_is_received() -> None:
    walk = Walk()
    frame = request(1, 11, 5, bytes(5000))
    walk.receive(frame[:100])
    assert walk.passed == frame[:100]
    assert walk.frames.missing == len(frame) - 100


def test_produce_without_acks_is_not_waited_for() -> None:
    walk = Walk()
    for iteration in range(1000):
        walk.receive(produce(7, iteration, 0))
    assert not walk.pending


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7, FRAME_MAX + 1, 2**31 - 1])
def test_an_impossible_size_is_the_peers_fault(size: int) -> None:
    with pytest.raises(RemoteProtocolError):
        Walk().receive(struct.pack(">i", size) + bytes(20))


@pytest.mark.parametrize(
    ("first", "word"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "TLS handshake"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "TLS alert"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"POST /x HTTP/1.1\r\n", "HTTP"),
        (b"SSH-2.0-OpenSSH\r\n", "SSH"),
    ],
)
def test_what_is_no_kafka_is_named(first: bytes, word: str) -> None:
    with pytest.raises(RemoteProtocolError, match=word):
        Walk().receive(first)


def test_a_request_to_be_amended_is_amended_in_place_if_it_has_come_whole_and_stops_the_walk_if_not() -> None:
    whole, cut = Walk(), Walk()
    whole.receive(request(78, 1, 1, b"abc") + request(78, 1, 2, b"xyz") + request(1, 11, 3))
    assert whole.passed == request(78, 1, 1, b"999") + request(78, 1, 2, b"999") + request(1, 11, 3)
    assert list(whole.pending) == [(1, Named("whole")), (2, Named("x")), (3, FETCH)]
    cut.receive(request(78, 1, 1, b"abc")[:-1])
    assert (cut.stopped, cut.passed) == ([struct.pack(">hh", 78, 1)], b"")


def test_a_request_to_be_inspected_passes_only_if_it_has_come_whole_and_is_not_served_here() -> None:
    """The walk stops at what may have to be gathered; `forward` says what is expected of the rest."""
    match = inspect_unserved(
        lambda frame: b"mine" in bytes(frame), inspect_to_amend(lambda frame: None, Named("others"))
    )
    for body, come, expected in ((b"others", 100, Named("others")), (b"mine", 100, None), (b"others", 5, None)):
        frame = memoryview(request(3, 9, 1, body))
        assert match(frame, 0, min(len(frame), come), len(frame)) == expected


def test_a_negative_size_is_distinguished_from_a_long_one() -> None:
    with pytest.raises(RemoteProtocolError, match="negative"):
        Walk().receive(struct.pack(">i", -5))
    with pytest.raises(RemoteProtocolError, match=f"larger than the limit of {FRAME_MAX}"):
        Walk().receive(struct.pack(">i", FRAME_MAX + 1) + bytes(12))


def test_a_produce_request_that_ends_before_its_acks_is_the_peers_fault() -> None:
    with pytest.raises(RemoteProtocolError, match="ProduceRequest v7: it ends too early"):
        Walk().receive(request(0, 7, 1, b"\x00\x02me\xff\xff") + bytes(100))


def test_a_produce_request_with_an_endless_client_id_never_reads_past_its_frame() -> None:
    """The length of a string may point anywhere: into the next frame, or after the received bytes."""
    with pytest.raises(RemoteProtocolError):
        Walk().receive(request(0, 7, 1, struct.pack(">h", 32_000)) + produce(7, 2, 1) + bytes(200))


def test_another_table_counts_from_the_next_frame_on() -> None:
    walk = Walk()
    walk.receive(request(1, 11, 1))
    walk.frames.go_by(NOTHING_PASSES)
    walk.receive(request(1, 11, 2))
    assert walk.stopped == [struct.pack(">hh", 1, 11)]
    assert list(walk.pending) == [(1, FETCH)]


@repeated("seed", range(200))
def test_any_bytes_give_positions_or_a_protocol_error(seed: int) -> None:
    """The fuzz invariant: nothing else is raised, and no byte is lost or made up."""
    rng = random.Random(seed)
    data = bytearray(STREAM * 2 if seed % 2 else rng.randbytes(400))
    for _ in range(rng.randrange(1, 6)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    walk = Walk()
    sent = 0
    try:
        while sent < len(data):
            step = rng.choice([1, 3, 17, 200, 1000])
            walk.receive(bytes(data[sent : sent + step]))
            sent += step
    except RemoteProtocolError:
        return
    assert len(walk.passed) <= len(data)
    assert len(walk.pending) <= len(data) // 12
