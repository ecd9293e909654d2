"""Records read through views on real brokers: every record once, in its slot, with any codec or version."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.views.fetch.key_filter import TAG, applied_tag
from kafka_share_proxy.views.model.slots import Cut, EvenCut, StripeCut
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.key_hash import murmur2

from tests.support.blocking_connection import Connection, build
from tests.support.raw import Raw, Topic, until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(480)]

KEYS = 50
ROUNDS_MAX = 200


@pytest.fixture
def raw(front: Front) -> Iterator[Raw]:
    with Raw(front.bootstrap) as connection:
        yield connection


def fill(front: Front, topic: str, count: int, **options: Any) -> None:
    """Keyed records, every tenth without a key; the value is a number."""
    producer = Producer({"bootstrap.servers": front.bootstrap, "linger.ms": 2, **options})
    for number in range(count):
        key = None if number % 10 == 9 else b"key-%d" % (number % KEYS)
        producer.produce(topic, b"%d" % number, key, 0)
    assert producer.flush(20) == 0


def view_of(raw: Raw, name: str, partitions: int) -> Topic:
    """The view, made ready by asking for it."""

    def there() -> Topic | None:
        existing = raw.view(name)
        return existing if existing is not None and len(existing.leaders) == partitions else None

    topic: Topic = until(there, f"view {name}")
    return topic


def fetch(on: Connection, version: int, *expected: tuple[Topic, Mapping[int, int]], **options: Any) -> Any:
    """One Fetch: topics, each with partition -> offset."""
    values = {"max_wait_ms": 300, "min_bytes": 1, "max_bytes": 1 << 20, "session_id": 0, "session_epoch": -1}
    tags = options.pop("tags", ())
    message = registry.message("FetchRequest")
    topics = [
        message.FetchTopic(
            **({"topic_id": topic.topic_id} if version >= 13 else {"topic": topic.name}),
            partitions=[
                message.FetchPartition(partition=p, fetch_offset=o, partition_max_bytes=1 << 18, unknown_tags=tags)
                for p, o in partitions.items()
            ],
        )
        for topic, partitions in expected
    ]
    return on.send_request(1, version, build("FetchRequest", **values | options, topics=topics))


def parts(response: Any) -> dict[int, Any]:
    return {entry.partition_index: entry for topic in response.responses for entry in topic.partitions}


def read_all(on: Connection, version: int, view: Topic, slots: int, end: int, **options: Any) -> dict[int, list[Any]]:
    """Every record of every slot, as a consumer gets them; each slot must come to `end`."""
    offsets = dict.fromkeys(range(slots), 0)
    got: dict[int, list[Any]] = defaultdict(list)
    for _ in range(ROUNDS_MAX):
        behind = {slot: offset for slot, offset in offsets.items() if offset < end}
        if not behind:
            break
        for slot, entry in parts(fetch(on, version, (view, behind), **options)).items():
            assert entry.error_code == 0
            data = memoryview(entry.records)
            for batch in records.iter_batches(data):
                offsets[slot] = batch.last_offset + 1
                if not batch.is_control:
                    got[slot] += records.decode_records(data[batch.position : batch.end])
    assert set(offsets.values()) == {end}
    return got


def check(got: Mapping[int, list[Any]], expected: list[Any], cut: Cut) -> None:
    """Each slot has exactly its records, in order."""
    for slot in range(cut.slots):
        mine = [(r.offset, r.key, r.value) for r in expected if cut.slot_of(r.key, r.offset) == slot]
        assert [(r.offset, r.key, r.value) for r in got.get(slot, [])] == mine


def base_records(raw: Raw, topic: Topic, end: int) -> list[Any]:
    """Return what a consumer of the base gets."""
    return read_all(raw.kept(raw.node(topic.leaders[0])), 12, topic, 1, end)[0]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a004_22_every_codec_is_opened(front: Front, raw: Raw, fresh: Callable[[str], str], codec: str) -> None:
    """All slots together are the base; null keys are spread by offset. Even ranges and stripes, by name and by id."""
    base = raw.create_topic(fresh("b"))
    fill(front, base.name, 1000, **{"compression.type": codec})
    expected = base_records(raw, base, 1000)
    on = raw.kept(raw.node(base.leaders[0]))
    for kind, cut, version in (("r3", EvenCut(3), 12), ("s4", StripeCut(4), 11), ("r4", EvenCut(4), 15)):
        view = view_of(raw, f"__view.{kind}.{base.name}", cut.slots)
        check(read_all(on, version, view, cut.slots, 1000), expected, cut)


def test_a004_22_transactions_in_both_isolation_levels(front: Front, raw: Raw, fresh: Callable[[str], str]) -> None:
    """Commits, aborts and one that stays open: as a plain consumer of the base gets it, split offline."""
    base = raw.create_topic(fresh("b"))
    producers = []
    for number in range(2):
        producer = Producer({"bootstrap.servers": front.bootstrap, "transactional.id": fresh(f"x{number}")})
        producer.init_transactions(20)
        producers.append(producer)
    for round_number in range(6):
        for number, producer in enumerate(producers):
            producer.begin_transaction()
            for n in range(30):
                producer.produce(base.name, b"%d-%d-%d" % (round_number, number, n), b"key-%d" % (n % 17), 0)
            producer.flush(10)
        producers[0].commit_transaction(20)
        (producers[1].abort_transaction if round_number % 2 else producers[1].commit_transaction)(20)
    stable = 6 * 2 * (30 + 1)
    until(lambda: raw.end_offset(base) == stable, "the markers of all transactions")
    producers[0].begin_transaction()
    producers[0].produce(base.name, b"open", b"key-1", 0)
    producers[0].flush(10)
    view, cut = view_of(raw, f"__view.r4.{base.name}", 4), EvenCut(4)
    on = raw.kept(raw.node(base.leaders[0]))
    for isolation, until_offset in ((1, stable), (0, raw.end_offset(base))):
        expected = _by_stock_consumer(front, base.name, isolation, until_offset)
        got = read_all(on, 15, view, 4, until_offset, isolation_level=isolation)
        check(got, expected, cut)
    entry = parts(fetch(on, 15, (view, {0: stable}), isolation_level=1))[0]
    assert (entry.last_stable_offset, bytes(entry.records), entry.aborted_transactions) == (stable, b"", [])
    producers[0].abort_transaction(20)


def _by_stock_consumer(front: Front, topic: str, isolation: int, end: int) -> list[records.Record]:
    level = "read_committed" if isolation else "read_uncommitted"
    consumer = Consumer(
        {"bootstrap.servers": front.bootstrap, "group.id": "x", "isolation.level": level, "enable.partition.eof": True}
    )
    place = TopicPartition(topic, 0, 0)
    consumer.assign([place])
    consumed: list[records.Record] = []

    def at_end() -> bool:
        messages = [message for message in consumer.consume(1000, 0.5) if message.error() is None]
        consumed.extend(records.Record(message.key(), message.value(), offset=message.offset()) for message in messages)
        return bool(consumer.position([place])[0].offset >= end or (consumed and consumed[-1].offset >= end - 2))

    until(at_end, "the base to be read")
    consumer.close()
    return consumed


def test_offsets_and_epochs_of_a_view_are_those_of_its_base(
    front: Front, raw: Raw, fresh: Callable[[str], str]
) -> None:
    """ListOffsets of every kind and OffsetForLeaderEpoch, with the base in the same request."""
    base = raw.create_topic(fresh("b"), 2)
    fill(front, base.name, 100)
    view = view_of(raw, f"__view.r2.{base.name}", 4)
    on = raw.kept(raw.node(base.leaders[0]))
    for timestamp in (-1, -2, -3, 0, 1 << 50):
        expected = [{"partition_index": v, "timestamp": timestamp} for v in range(4)]
        plain = [{"partition_index": p, "timestamp": timestamp} for p in range(2)]
        topics = [{"name": view.name, "partitions": expected}, {"name": base.name, "partitions": plain}]
        response = raw.send_request("ListOffsets", 7, on=on, replica_id=-1, topics=topics)
        offsets = [
            [(e.error_code, e.timestamp, e.offset, e.leader_epoch) for e in t.partitions] for t in response.topics
        ]
        assert offsets[0] == [offsets[1][0]] * 2 + [offsets[1][1]] * 2
        assert {entry[0] for entry in offsets[1]} == {0}
    requested = [{"partition": v, "leader_epoch": 0, "current_leader_epoch": -1} for v in range(4)]
    response = raw.send_request(
        "OffsetForLeaderEpoch", 4, on=on, replica_id=-1, topics=[{"topic": view.name, "partitions": requested}]
    )
    assert [(e.error_code, e.end_offset) for e in response.topics[0].partitions] == [(0, 100)] * 2 + [(0, 0)] * 2


def test_plain_topics_sessions_filters_and_errors(front: Front, raw: Raw, fresh: Callable[[str], str]) -> None:
    """One connection: a session of the broker's, a view in it, a mixed request, a filter, and what is wrong."""
    base, other = raw.create_topic(fresh("b")), raw.create_topic(fresh("o"))
    fill(front, base.name, 300)
    fill(front, other.name, 20)
    view = view_of(raw, f"__view.r2.{base.name}", 2)
    on = raw.kept(raw.node(base.leaders[0]))
    opened = fetch(on, 15, (base, {0: 300}), session_epoch=0)
    assert opened.session_id
    refused = fetch(on, 15, (view, {0: 0}), session_id=opened.session_id, session_epoch=1)
    assert refused.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    mixed = fetch(on, 15, (view, {0: 0, 1: 0}), (other, {0: 0}), (base, {0: 0}), session_epoch=0)
    assert mixed.session_id == 0
    plain = [(topic, parts(fetch(on, 15, (topic, {0: 0})))[0]) for topic in (other, base)]
    by_topic = {bytes(topic.topic_id): topic.partitions for topic in mixed.responses}
    for topic, entry in plain:
        assert bytes(by_topic[topic.topic_id][0].records) == bytes(entry.records)
    content = registry.codec("KeyFilter", 0).encode(
        build("KeyFilter", ranges=[{"first": 0, "last": 1 << 30}], keys=[b"key-1"], null_keys=1)
    )
    entry = parts(fetch(on, 15, (base, {0: 0}), tags=((TAG, content),)))[0]
    got = [r for b in records.iter_batches(entry.records) if not b.is_control
           for r in records.decode_records(entry.records[b.position : b.end])]  # fmt: skip
    expected = [r.offset for r in base_records(raw, base, 300)
              if r.key is None or r.key == b"key-1" or murmur2(r.key) <= 1 << 30]  # fmt: skip
    assert [r.offset for r in got] == expected
    assert entry.unknown_tags == (applied_tag(300),)
    codes = {o: parts(fetch(on, 15, (view, {0: o})))[0].error_code for o in (301, 300)}
    assert codes == {301: ErrorCode.OFFSET_OUT_OF_RANGE, 300: 0}
    stale = build("FetchRequest", max_wait_ms=100, min_bytes=1, topics=[
        {"topic_id": view.topic_id,
         "partitions": [{"partition": 1, "fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": 99}]}
    ])  # fmt: skip
    assert parts(on.send_request(1, 15, stale))[1].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a004_21_empty_slots_reach_the_end_without_errors(front: Front, raw: Raw, fresh: Callable[[str], str]) -> None:
    """One key, four slots: the client's own commits come to the end on all of them, and no error callback is called."""
    base = raw.create_topic(fresh("b"))
    producer = Producer({"bootstrap.servers": front.bootstrap})
    for number in range(500):
        producer.produce(base.name, b"%d" % number, b"one", 0)
    assert producer.flush(10) == 0
    view = view_of(raw, f"__view.r4.{base.name}", 4)
    errors: list[Any] = []
    options = {"group.id": fresh("g"), "error_cb": errors.append, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": front.bootstrap, **options})
    places = [TopicPartition(view.name, slot, 0) for slot in range(4)]
    consumer.assign(places)
    got: list[bytes] = []

    def everywhere_at_end() -> bool:
        got.extend(message.value() for message in consumer.consume(500, 0.2) if message.error() is None)
        return {place.offset for place in consumer.position(places)} == {500}

    until(everywhere_at_end, "all slots to be at the end")
    consumer.commit(asynchronous=False)
    assert {place.offset for place in consumer.committed(places, 10)} == {500}
    consumer.close()
    assert got == [b"%d" % number for number in range(500)]
    assert errors == []
