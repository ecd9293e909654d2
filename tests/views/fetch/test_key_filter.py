"""The tagged field KeyFilter: its content, its errors, and the echo."""

from __future__ import annotations

import pytest
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.loop.workers import InlineWorkers
from kafka_share_proxy.views.fetch import key_filter
from kafka_share_proxy.views.fetch.key_filter import TAG, TAG_BYTES, BadFilter, KeyFilterCache, applied_tag, content_in
from kafka_share_proxy.views.model.slots import murmur2
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.view_ports import HeldWorkers, ViewWorld, next_offset, offsets_in, partitions_of

KEYS = [b"key-%d" % number for number in range(40)] + [None, None]


def field(**values) -> bytes:
    message = registry.message("KeyFilter")
    ranges = [message.HashRange(first=first, last=last) for first, last in values.pop("ranges", ())]
    return registry.codec("KeyFilter", 0).encode(message(ranges=ranges, **values))


def entry(content: bytes):
    return registry.message("FetchRequest").FetchPartition(unknown_tags=((TAG, content),))


def test_layout_is_the_one_that_was_published():
    """version, hash, ranges, keys, null keys: clients have it from views/README.md rule 46."""
    assert (
        field(ranges=[(1, 2)], keys=[b"k"], null_keys=1).hex()
        == "0101" + "02" + "0000000100000002" + "00" + "02026b" + "01" + "00"
    )
    assert bytes(_uvarint(TAG)) == TAG_BYTES


def _uvarint(number: int):
    while number >= 0x80:
        yield number & 0x7F | 0x80
        number >>= 7
    yield number


def test_filter_keeps_ranges_and_single_keys():
    division = read(entry(field(ranges=[(0, 1 << 31)], keys=[b"x"], null_keys=0)))
    assert division is not None
    assert division.cut.slot_of(b"x", 0) == 0
    assert division.cut.slot_of(None, 0) == -1
    assert {division.cut.slot_of(k, 0) for k in KEYS if k and murmur2(k) > 1 << 31} == {-1}


def read(requested):
    return key_filter.read_filter(content_in(requested), b"")


@pytest.mark.parametrize(
    "content",
    [
        field(),
        field(ranges=[(2, 1)]),
        field(ranges=[(0, 1)], hash=2),
        field(ranges=[(0, 1)], filter_version=2),
        field(ranges=[(0, 1)], null_keys=3),
        b"\1",
        b"",
    ],
)
def test_a_filter_that_cannot_be_applied_is_refused(content):
    """An empty filter, an empty range, unknown words, bytes that are no such field."""
    with pytest.raises(BadFilter):
        read(entry(content))


def test_entry_without_the_field_is_not_filtered():
    assert content_in(registry.message("FetchRequest").FetchPartition(unknown_tags=((7, b"x"),))) is None


@pytest.mark.parametrize("version", [12, 13, 15])
def test_a_filter_is_confirmed_and_not_sent_upstream(version):
    """The echo says where to fetch from next."""
    world = ViewWorld()
    base = world.topic("t")
    world.produce(base, KEYS)
    name = base.topic_id if version >= 13 else "t"
    content = field(ranges=[(0, (1 << 31) - 1)], null_keys=1)
    reply = world.fetch(world.connect(), {name: {0: 0}}, version=version, tags={TAG: content})
    got = partitions_of(reply.message)[name, 0]
    expected = [i for i, key in enumerate(KEYS) if key is None or murmur2(key) < 1 << 31]
    assert offsets_in(got.records) == expected
    assert next_offset(got.records, 0) == len(KEYS)
    assert got.unknown_tags == (applied_tag(len(KEYS)),)
    (requested,) = world.cluster.requests(1)
    assert requested.topics[0].partitions[0].unknown_tags == ()


@pytest.mark.parametrize("on_view", [True, False])
def test_bad_filter_is_an_error_of_its_partition_only(on_view):
    """A filter on a view is one too."""
    world = ViewWorld()
    base = world.topic("t")
    name = world.view("__view.r2.t") if on_view else base.topic_id
    content = field(ranges=[(0, 1)]) if on_view else field()
    reply = world.fetch(world.connect(), {name: {0: 0}}, tags={TAG: content}, wait_ms=0)
    got = partitions_of(reply.message)[name, 0]
    assert got.error_code == ErrorCode.INVALID_REQUEST
    assert got.unknown_tags == ()
    assert world.cluster.count(1) == 0


def full_filter() -> bytes:
    return field(keys=[b"key-%d" % number for number in range(65_536)])


def test_a_long_filter_is_read_by_a_thread():
    """It takes a tenth of a second; the Fetch waits, and others do not."""
    workers = HeldWorkers()
    world = ViewWorld(workers=workers)
    base = world.topic("t")
    world.produce(base, KEYS)
    content = full_filter()
    reply = world.fetch(world.connect(), {base.topic_id: {0: 0}}, tags={TAG: content})
    assert not reply.done
    assert len(workers.jobs) == 1
    workers.work()
    assert offsets_in(partitions_of(reply.message)[base.topic_id, 0].records) == [n for n, k in enumerate(KEYS) if k]
    again = world.fetch(world.connect(), {base.topic_id: {0: 0}}, tags={TAG: content})
    assert again.done
    assert workers.jobs == []


def test_the_filter_of_a_client_without_read_on_the_topic_is_not_parsed(monkeypatch):
    """The client gets the error, and the filter stays encoded."""
    world = ViewWorld()
    base = world.topic("t")
    base.bits = 0

    def read(*_):
        raise AssertionError("read")

    monkeypatch.setattr(key_filter, "read_filter", read)
    reply = world.fetch(world.connect(), {base.topic_id: {0: 0}}, tags={TAG: full_filter()}, wait_ms=0)
    assert partitions_of(reply.message)[base.topic_id, 0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_filters_of_one_request_are_bounded(monkeypatch):
    """INVALID_REQUEST, and the log says which limit it was."""
    monkeypatch.setattr("kafka_share_proxy.views.apis.k01_fetch.REQUEST_BYTES_MAX", 100)
    world = ViewWorld()
    base = world.topic("t")
    reply = world.fetch(world.connect(), {base.topic_id: {0: 0}}, tags={TAG: field(keys=[bytes(100)])}, wait_ms=0)
    assert partitions_of(reply.message)[base.topic_id, 0].error_code == ErrorCode.INVALID_REQUEST


def test_a_full_queue_of_the_threads_returns_a_retriable_error():
    workers = HeldWorkers()
    workers.is_full = True
    world = ViewWorld(workers=workers)
    base = world.topic("t")
    reply = world.fetch(world.connect(), {base.topic_id: {0: 0}}, tags={TAG: full_filter()}, wait_ms=0)
    assert partitions_of(reply.message)[base.topic_id, 0].error_code == ErrorCode.OFFSET_NOT_AVAILABLE


def test_filters_that_are_kept_are_bounded():
    """Their memory is counted; the oldest is evicted first."""
    filters = KeyFilterCache(limit_bytes=20_000)
    for number in range(10):
        Task(filters.read(field(keys=[b"%d" % number]), InlineWorkers(), None), lambda task: None).start()
    assert filters._bytes <= 20_000
    assert 0 < len(filters._parsed) < 10
