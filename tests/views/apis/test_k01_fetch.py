"""Fetch: which requests are served here, and their responses."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.views.model.slots import EvenCut
from kafka_share_proxy.views.settings import Views
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import compression, records

from tests.support.view_ports import ViewWorld, next_offset, offsets_in, partitions_of

KEYS = [b"key-%d" % number for number in range(200)]


@pytest.fixture
def world() -> ViewWorld:
    return ViewWorld()


def request(version: int, topics: list[Any], **fields: Any) -> Any:
    return registry.message("FetchRequest")(topics=topics, **fields)


def by_id(topic_id: bytes, *partitions: Any) -> Any:
    message = registry.message("FetchRequest")
    return message.FetchTopic(topic_id=topic_id, partitions=list(partitions) or [message.FetchPartition(partition=0)])


@pytest.mark.parametrize("version", [13, 14, 15])
def test_request_of_known_topics_passes_by_its_bytes(world, version):
    """However many topics and partitions are named."""
    topics = [world.topic(f"t{n}").topic_id for n in range(200)]
    message = registry.message("FetchRequest")
    many = [message.FetchPartition(partition=n) for n in range(300)]
    assert not world.looked_at(version, request(version, [by_id(t) for t in topics]))
    assert not world.looked_at(version, request(version, [by_id(topics[0], *many), by_id(topics[1])]))
    assert not world.looked_at(version, request(version, [], session_id=5, session_epoch=9))


@pytest.mark.parametrize("version", [13, 14, 15])
def test_unknown_id_and_tags_are_inspected(world, version):
    """A view, an unknown id, and a field with a tag anywhere among the topics."""
    known = world.topic("t").topic_id
    message = registry.message("FetchRequest")
    tagged = message.FetchPartition(partition=1, unknown_tags=((27501, b"x"),))
    assert world.looked_at(version, request(version, [by_id(known), by_id(b"v" * 16)]))
    assert world.looked_at(version, request(version, [by_id(known, message.FetchPartition(partition=0), tagged)]))
    assert world.looked_at(version, request(version, [by_id(known, tagged)]))
    odd = by_id(known)
    odd.unknown_tags = ((7, b""),)
    assert world.looked_at(version, request(version, [odd]))


@pytest.mark.parametrize("version", [4, 7, 11, 12])
def test_names_of_views_are_found_in_older_versions(world, version):
    """The prefix of their names is found at any position."""
    message = registry.message("FetchRequest")
    partition = [message.FetchPartition(partition=0)]
    plain, view = (message.FetchTopic(topic=name, partitions=partition) for name in ("t", "__view.r2.t"))
    assert not world.looked_at(version, request(version, [plain]))
    assert world.looked_at(version, request(version, [plain, view]))


@pytest.mark.parametrize("version", [4, 11, 12, 13, 15])
def test_slots_have_everything_once(world, version):
    """Each record is in its key's slot, in order, and every slot ends at the end."""
    base = world.topic("t")
    view: bytes | str = world.view("__view.r4.t")
    for start in range(0, 200, 50):
        world.produce(base, KEYS[start : start + 50])
    name = view if version >= 13 else "__view.r4.t"
    response = world.fetch(world.connect(), {name: dict.fromkeys(range(4), 0)}, version=version).message
    cut, offsets_by_slot = EvenCut(4), {}
    for (_, slot), entry in partitions_of(response).items():
        offsets_by_slot[slot] = offsets_in(entry.records)
        assert next_offset(entry.records, 0) == 200
        assert entry.high_watermark == 200
    expected = {slot: [i for i, key in enumerate(KEYS) if cut.slot_of(key, i) == slot] for slot in range(4)}
    assert offsets_by_slot == expected
    assert world.cluster.count(1) == 1


def test_upstream_is_queried_once_without_session(world):
    """One entry for a base partition, by the base's id, for any number of slots."""
    base = world.topic("t")
    view = world.view("__view.r4.t")
    world.produce(base, KEYS)
    response = world.fetch(world.connect(), {view: dict.fromkeys(range(4), 0)}, session=(0, 0)).message
    assert response.session_id == 0
    (requested,) = world.cluster.requests(1)
    assert (requested.session_id, requested.session_epoch, requested.rack_id) == (0, -1, "")
    assert [(t.topic_id, len(t.partitions)) for t in requested.topics] == [(base.topic_id, 1)]


def test_an_incremental_request_that_names_a_view_returns_fetch_session_id_not_found(world):
    """70, without a request to the broker; a session given up by a full request is closed upstream."""
    world.topic("t")
    view = world.view("__view.r4.t")
    response = world.fetch(world.connect(), {view: {0: 0}}, session=(77, 3)).message
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert world.cluster.count(1) == 0
    world.fetch(world.connect(), {view: {0: 0}}, session=(77, 0), wait_ms=0)
    assert world.cluster.requests(1)[0].session_id == 77


def test_an_unknown_topic_id_is_looked_up_before_it_is_sent_upstream(world):
    """A plain one is then forwarded, a view is served, an unknown one is served here."""
    plain, base = world.topic("plain", plain=False), world.topic("t")
    client = world.connect()
    assert world.fetch(client, {plain.topic_id: {0: 0}}).task.value is None
    view = world.view("__view.r2.t")
    world.views.catalog.forget("__view.r2.t")
    world.produce(base, KEYS)
    assert next_offset(partitions_of(world.fetch(client, {view: {0: 0}}).message)[view, 0].records, 0) == 200
    nobody = b"n" * 16
    response = world.fetch(client, {nobody: {0: 0}, plain.topic_id: {0: 0}}, wait_ms=0).message
    assert partitions_of(response)[nobody, 0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert partitions_of(response)[plain.topic_id, 0].error_code == ErrorCode.NONE
    assert world.creation.resolved == [plain.topic_id, view, nobody]
    assert all(t.topic_id != nobody for r in world.cluster.requests(1) for t in r.topics)


@pytest.mark.parametrize("version", [12, 15])
def test_plain_partitions_of_the_same_request_pass_untouched(world, version):
    """The broker's bytes, in one request with the base."""
    base, other = world.topic("t"), world.topic("other")
    view = world.view("__view.r2.t")
    world.produce(base, KEYS)
    world.produce(other, KEYS[:7])
    topics = ("__view.r2.t", "other", "t") if version < 13 else (view, other.topic_id, base.topic_id)
    expected = {topics[0]: {0: 0, 1: 0}, topics[1]: {0: 3}, topics[2]: {0: 0}}
    response = partitions_of(world.fetch(world.connect(), expected, version=version).message)
    assert bytes(response[topics[1], 0].records) == other.logs[0].batches[0][2]
    assert bytes(response[topics[2], 0].records) == base.logs[0].batches[0][2]
    assert len(offsets_in(response[topics[0], 0].records)) + len(offsets_in(response[topics[0], 1].records)) == 200
    assert world.cluster.count(1) == 1
    assert sum(len(t.partitions) for t in world.cluster.requests(1)[0].topics) == 2


def test_base_with_another_topic_id_is_queried_separately(world):
    """Never one partition twice in a request; neither waits for the other."""
    base = world.topic("t")
    view = world.view("__view.r2.t")
    for start in range(0, 200, 50):
        world.produce(base, KEYS[start : start + 50])
    reply = world.fetch(world.connect(), {view: {0: 0, 1: 0}, base.topic_id: {0: 150}})
    response = partitions_of(reply.message)
    assert offsets_in(response[base.topic_id, 0].records) == list(range(150, 200))
    assert next_offset(response[view, 0].records, 0) == 200
    for requested in world.cluster.requests(1):
        places = [(t.topic_id, p.partition) for t in requested.topics for p in t.partitions]
        assert len(places) == len(set(places))


def test_errors_of_the_base_are_returned_for_every_slot(world):
    """With the leader, immediately."""
    base = world.topic("t", (1, 2))
    view = world.view("__view.r2.t")
    client = world.connect(1)
    response = partitions_of(world.fetch(client, {view: dict.fromkeys(range(4), 0)}, wait_ms=10_000).message)
    entries = [response[view, v] for v in (2, 3)]
    assert [entry.error_code for entry in entries] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert {(e.current_leader.leader_id, e.current_leader.leader_epoch) for e in entries} == {(2, 5)}
    assert response[view, 0].error_code == ErrorCode.NONE
    base.bits = 1 << 8
    world.timers.advance(60)
    refused = partitions_of(world.fetch(world.connect(1), {view: {0: 0, 1: 0}}).message)
    assert {entry.error_code for entry in refused.values()} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("version", [12, 15])
def test_a_recreated_base_is_not_read_for_the_old_view(world, version):
    """The topic id does not match; older clients get an unknown-topic error."""
    world.topic("t")
    view = world.view("__view.r2.t")
    del world.cluster.topics["t"]
    name = view if version >= 13 else "__view.r2.t"
    entry = partitions_of(world.fetch(world.connect(), {name: {0: 0}}, version=version).message)[name, 0]
    expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert entry.error_code == expected


def test_partition_the_view_does_not_have_is_unknown(world):
    """After a check whether it has grown."""
    world.topic("t")
    view = world.view("__view.r2.t")
    entry = partitions_of(world.fetch(world.connect(), {view: {2: 0}}).message)[view, 2]
    assert entry.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.creation.ensured == ["__view.r2.t"]


def test_base_that_grew_is_served_immediately(world):
    base = world.topic("t")
    view = world.view("__view.r2.t")
    base.logs.append(type(base.logs[0])(1))
    world.produce(base, KEYS, partition=1)
    entry = partitions_of(world.fetch(world.connect(), {view: {2: 0}}).message)[view, 2]
    assert next_offset(entry.records, 0) == 200


def test_response_ends_with_a_filler_where_the_last_record_was_dropped(world):
    """Once, from after the last kept record on, and the header of the previous batch does not include it."""
    base = world.topic("t")
    view = world.view("__view.r2.t")
    mine = next(key for key in KEYS if EvenCut(2).slot_of(key, 0) == 0)
    other = next(key for key in KEYS if EvenCut(2).slot_of(key, 0) == 1)
    world.produce(base, [mine, other, other])
    data = partitions_of(world.fetch(world.connect(), {view: {0: 0, 1: 0}}).message)[view, 0].records
    batches = list(records.iter_batches(data))
    assert [(b.base_offset, b.last_offset, b.is_control) for b in batches] == [(0, 0, False), (1, 2, True)]
    assert all(records.has_valid_checksum(data[b.position : b.end]) for b in batches)
    assert batches[1].leader_epoch == 5


def test_markers_are_returned_under_read_uncommitted_only(world):
    """Aborted records are resolved here, and the aborted list is empty."""
    base = world.topic("t")
    view = world.view("__view.r2.t")
    mine = next(key for key in KEYS if EvenCut(2).slot_of(key, 0) == 0)
    world.produce(base, [mine, mine], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log = base.logs[0]
    marker = records.Record(key=b"\0\0\0\0", value=b"\0\0\0\0\0\0")
    data = records.build_batch(
        2, [marker], leader_epoch=5, producer_id=7, producer_epoch=0, is_transactional=True, is_control=True
    )
    log.batches.append((2, 2, data))
    log.end, log.aborted = 3, [(7, 0)]
    world.produce(base, [mine])
    every = partitions_of(world.fetch(world.connect(), {view: {0: 0, 1: 0}}).message)
    assert offsets_in(every[view, 0].records) == [0, 1, 3]
    assert data in bytes(every[view, 0].records)
    assert data in bytes(every[view, 1].records)
    assert every[view, 0].aborted_transactions is None
    committed = partitions_of(world.fetch(world.connect(), {view: {0: 0, 1: 0}}, isolation=1).message)
    assert offsets_in(committed[view, 0].records) == [3]
    assert data not in bytes(committed[view, 0].records)
    assert committed[view, 0].aborted_transactions == []
    assert next_offset(committed[view, 1].records, 0) == 4


def test_batch_that_cannot_be_read_is_an_error_of_its_slots_only(world):
    """Earlier batches are delivered first; it is never skipped."""
    base, fine = world.topic("t"), world.topic("fine")
    view, other = world.view("__view.r2.t"), world.view("__view.r2.fine")
    world.produce(base, KEYS[:20])
    broken = bytearray(records.build_batch(20, [records.Record(key=b"k", value=b"v")] * 3, leader_epoch=5))
    broken[-5] ^= 0xFF
    broken[61] = 0x7F
    base.logs[0].batches.append((20, 22, bytes(broken)))
    base.logs[0].end = 23
    world.produce(fine, KEYS[:20])
    client = world.connect()
    first = partitions_of(world.fetch(client, {view: {0: 0, 1: 0}, other: {0: 0}}).message)
    assert {first[view, slot].error_code for slot in (0, 1)} == {0}
    assert next_offset(first[view, 0].records, 0) == 20
    again = partitions_of(world.fetch(client, {view: {0: 20, 1: 20}, other: {0: 0}}).message)
    assert {again[view, slot].error_code for slot in (0, 1)} == {ErrorCode.CORRUPT_MESSAGE}
    assert again[other, 0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("codec", [compression.NONE, compression.LZ4, compression.ZSTD])
def test_responses_are_compressed_if_set(codec):
    """The records are the same."""
    world = ViewWorld(view_options=Views.model_construct(codec=compression.NAMES[codec]))
    base = world.topic("t")
    view = world.view("__view.r2.t")
    world.produce(base, KEYS, codec=compression.GZIP)
    response = partitions_of(world.fetch(world.connect(), {view: {0: 0, 1: 0}}).message)
    assert sorted(offsets_in(response[view, 0].records) + offsets_in(response[view, 1].records)) == list(range(200))
    data_batches = [
        b for slot in (0, 1) for b in records.iter_batches(response[view, slot].records) if not b.is_control
    ]
    assert {batch.compression for batch in data_batches} == {codec}


def test_batch_that_cannot_be_read_is_noted(world):
    """With its position."""
    base = world.topic("t")
    view = world.view("__view.r2.t")
    broken = bytearray(records.build_batch(0, [records.Record(key=b"k", value=b"v")] * 3, leader_epoch=5))
    broken[61] = 0x7F
    base.logs[0].batches.append((0, 2, bytes(broken)))
    base.logs[0].end = 3
    world.fetch(world.connect(), {view: {0: 0}})
    expected = {"topic": "t", "partition": 0, "offset": 0, "reason": "CORRUPT_MESSAGE"}
    assert ("view-batch-unreadable", expected) in world.notes
