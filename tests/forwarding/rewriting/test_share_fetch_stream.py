"""ShareFetch responses that are forwarded in pieces, compared with the same responses rewritten as a whole."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.forwarding.dispatch.routes import Context
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.forwarding.rewriting.address_rewriting import drop_node_endpoints, rewriter
from kafka_share_proxy.forwarding.rewriting.share_fetch_stream import (
    ELEMENT_BYTES_MAX,
    ShareFetchRewriter,
    ShareFetchStream,
    padded,
)
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.values import Address

from tests.wire.samples import UNKNOWN_TAGS, Samples

RESPONSE = registry.message("ShareFetchResponse")
VERSIONS = range(registry.versions(78)[0], registry.versions(78)[1] + 1)
CONTEXT = Context(node_id=1)
HIDDEN = "broker-3.internal.example"
"""Host of each broker, which no client may see."""
SHORT = "proxy"


def sample(seed: object, version: int, *, tags: bool = True) -> Any:
    message = Samples(seed, tags=tags).message(registry.response_spec(78), version)
    message.node_endpoints = []
    return message


def endpoint(node_id: int, rack: str | None = None, *, host: str = HIDDEN, port: int = 9092) -> Any:
    return RESPONSE.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)


def book(host: str, known: Sequence[int] = (1, 2, 3)) -> AddressBook:
    return AddressBook(20000, host, lambda node_id, _: node_id in known)


def share_fetch_rewriter(version: int, addresses: AddressBook) -> ShareFetchRewriter:
    return ShareFetchRewriter(rewriter(78, version, addresses, drop_node_endpoints), version, addresses)


def framed(version: int, message: Any) -> bytes:
    return bytes(frames.response(78, version, 7, message))


def decoded(version: int, frame: bytes) -> Any:
    return frames.decode_response(78, version, memoryview(frame)[4:])[1]


def unchanged(_: bytes) -> bytes:
    raise AssertionError("there are no addresses to rewrite")


def forwarded(stream: ShareFetchStream, frame: bytes, pieces: Sequence[int]) -> bytes:
    """The bytes for the client if the response arrives in pieces of these sizes, the rest in one."""
    sent, kept, missing, at = bytearray(), bytearray(), 0, 0
    for size in (*pieces, len(frame)):
        arrived = frame[at : at + size]
        at += len(arrived)
        sent += arrived[:missing]
        kept += arrived[missing:]
        missing -= min(missing, len(arrived))
        while kept and stream.remaining:
            upto = stream.advance(memoryview(kept))
            if not upto:
                break
            sent += kept[:upto]
            missing = max(upto - len(kept), 0)
            del kept[:upto]
    assert (missing, bytes(kept)) == (0, b"")
    assert not stream.remaining
    return bytes(sent)


cuts = st.lists(st.integers(1, 700), max_size=12)


@pytest.mark.parametrize("version", VERSIONS)
@given(seed=st.integers(0, 1 << 32), pieces=cuts)
def test_a_response_without_addresses_is_forwarded_as_it_is(version: int, seed: int, pieces: list[int]) -> None:
    frame = framed(version, sample(seed, version))
    assert forwarded(ShareFetchStream(len(frame) - 4, unchanged), frame, pieces) == frame


def test_records_are_forwarded_before_they_have_arrived() -> None:
    partition = RESPONSE.PartitionData(records=b"r" * 1_000_000)
    topic = RESPONSE.ShareFetchableTopicResponse(partitions=[partition])
    frame = framed(2, RESPONSE(responses=[topic]))
    stream = ShareFetchStream(len(frame) - 4, unchanged)
    upto = stream.advance(memoryview(frame)[:500])
    assert upto == frame.index(partition.records) + len(partition.records)
    assert stream.remaining == len(frame) - upto == len(b"\1\0\0\1\0")


@pytest.mark.parametrize("count", [1, 7, 5000])
@pytest.mark.parametrize("tagged_every", [1, 2, 3, 1 << 20])
def test_acquired_records_of_any_number_are_passed(count: int, tagged_every: int) -> None:
    """With tags in every entry, in some, or in the last alone."""
    acquired = [RESPONSE.AcquiredRecords(first_offset=n, last_offset=n) for n in range(count)]
    for entry in (*acquired[::tagged_every][1:], acquired[-1]):
        entry.unknown_tags = UNKNOWN_TAGS
    partitions = [RESPONSE.PartitionData(records=b"r" * 70_000, acquired_records=acquired)] * 2
    frame = framed(2, RESPONSE(responses=[RESPONSE.ShareFetchableTopicResponse(partitions=partitions)]))
    pieces = [random.Random(count).randrange(1, 9000) for _ in range(60)]
    assert forwarded(ShareFetchStream(len(frame) - 4, unchanged), frame, pieces) == frame


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("host", ["p", "proxy", "proxy-3.example.co.uk.xx", HIDDEN, "a-longer.name." + HIDDEN])
@given(seed=st.integers(0, 1 << 32), pieces=cuts, nodes=st.lists(st.integers(1, 4), min_size=1, max_size=12))
def test_addresses_are_rewritten_in_place_or_dropped(
    version: int, host: str, seed: int, pieces: list[int], nodes: list[int]
) -> None:
    """They are those of a whole response if they fit, and none otherwise. Node 4 has no listener."""
    message = sample(seed, version, tags=bool(seed % 2))
    message.node_endpoints = [endpoint(node, (None, "", "rack-1")[(seed + node) % 3]) for node in nodes]
    frame, whole = framed(version, message), share_fetch_rewriter(version, book(host))
    sent = forwarded(share_fetch_rewriter(version, book(host)).begin(len(frame) - 4), frame, pieces)
    assert len(sent) == len(frame)
    assert HIDDEN.encode() not in sent.replace(host.encode(), b"") or HIDDEN in host
    rewritten = whole(memoryview(frame)[4:], CONTEXT)
    expected, received = decoded(version, bytes(rewritten or frame)), decoded(version, sent)
    assert received.node_endpoints in (expected.node_endpoints, [])
    if len(rewritten or frame) in (len(frame), *range(len(frame) - 2)):
        assert received.node_endpoints == expected.node_endpoints
    assert set(expected.unknown_tags) <= set(received.unknown_tags)
    expected.node_endpoints = received.node_endpoints = []
    expected.unknown_tags = received.unknown_tags = ()
    assert received == expected


def test_an_address_of_the_same_length_keeps_everything() -> None:
    message = RESPONSE(node_endpoints=[endpoint(2)], unknown_tags=UNKNOWN_TAGS)
    same = "x" * len(HIDDEN)
    frame = framed(2, message)
    sent = forwarded(share_fetch_rewriter(2, book(same)).begin(len(frame) - 4), frame, [30])
    message.node_endpoints[0].host, message.node_endpoints[0].port = same, 20002
    assert sent == framed(2, message)


@pytest.mark.parametrize("tags", [(), UNKNOWN_TAGS])
def test_any_number_of_bytes_but_one_or_two_is_filled_by_a_tagged_field(tags: Any) -> None:
    codec = registry.response(78, 2)
    for unused in (*range(400), *range(16_381, 16_388), 40_000):
        message = RESPONSE(node_endpoints=[endpoint(1)], unknown_tags=tags)
        size = len(codec.encode(message)) + unused
        result = padded(codec, message, size)
        if unused in (1, 2):
            assert result is None, unused
            continue
        assert len(result) == size
        received = codec.decode(result)
        assert received.node_endpoints == message.node_endpoints, unused
        assert set(tags) <= set(received.unknown_tags), unused
        assert all(not any(value) for _, value in set(received.unknown_tags) - set(tags)), unused


@pytest.mark.parametrize("shorter", [*range(16), 127, 128, 129, 130, 131, 132, 133, 134, 135])
@pytest.mark.parametrize("tags", [(), UNKNOWN_TAGS])
def test_a_shorter_address_replaces_a_longer_one(shorter: int, tags: Any) -> None:
    """A tagged field fills the rest, or the address is dropped: an entry has at least 11 bytes."""
    message = RESPONSE(node_endpoints=[endpoint(1)], unknown_tags=tags)
    message.node_endpoints[0].host = SHORT + "h" * shorter
    frame = framed(2, message)
    sent = forwarded(share_fetch_rewriter(2, book(SHORT)).begin(len(frame) - 4), frame, [9])
    assert len(sent) == len(frame)
    received = decoded(2, sent)
    unused = len(frame) - len(framed(2, RESPONSE(node_endpoints=[endpoint(1, host=SHORT)], unknown_tags=tags)))
    expected = [] if unused in (1, 2) else [endpoint(1, host=SHORT, port=20001)]
    assert received.node_endpoints == expected
    assert set(tags) <= set(received.unknown_tags)


def reads(frame: bytes, pieces: Sequence[int] = ()) -> Callable[[], bytes]:
    return lambda: forwarded(ShareFetchStream(len(frame) - 4, lambda ending: ending), frame, pieces)


@given(seed=st.integers(0, 1 << 32), cut=st.integers(1, 400))
def test_a_response_that_ends_too_early_is_refused_or_has_no_addresses(seed: int, cut: int) -> None:
    frame = framed(2, sample(seed, 2))
    frame = frame[: max(len(frame) - cut, 8)]
    try:
        assert reads(frame)() == frame
    except RemoteProtocolError as error:
        assert "ShareFetch" in str(error) or "tagged" in str(error)  # noqa: PT017  # either outcome is right


@given(data=st.binary(min_size=8, max_size=300), pieces=cuts)
def test_garbage_is_refused_or_forwarded_in_its_size(data: bytes, pieces: list[int]) -> None:
    with suppress(RemoteProtocolError):
        assert len(reads(data, pieces)()) == len(data)


def test_an_element_that_is_too_long_to_be_kept_is_refused() -> None:
    messages = {"error_message": "m" * 32_000, "acknowledge_error_message": "m" * 32_760}
    partition = RESPONSE.PartitionData(records=b"", **messages)
    frame = framed(2, RESPONSE(responses=[RESPONSE.ShareFetchableTopicResponse(partitions=[partition])]))
    assert reads(frame, [100, 60_000])() == frame
    entries = [endpoint(node, "r" * 30_000) for node in range(3)]
    frame = framed(2, RESPONSE(node_endpoints=entries))
    with pytest.raises(RemoteProtocolError, match=f"more than {ELEMENT_BYTES_MAX} bytes"):
        reads(frame, [100, ELEMENT_BYTES_MAX])()


def test_the_upstream_address_is_learned_as_from_a_whole_response() -> None:
    addresses = book("proxy")
    frame = framed(2, RESPONSE(node_endpoints=[endpoint(3)]))
    forwarded(share_fetch_rewriter(2, addresses).begin(len(frame) - 4), frame, [20])
    assert addresses.advertise(3, Address(HIDDEN, 9092)) == Address("proxy", 20003)
