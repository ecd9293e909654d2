"""Records given to readers of views and filters, and new plans, as audit events."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.audit.events import HASH_SPACE
from kafka_share_proxy.audit.fetches import Hashes
from kafka_share_proxy.audit.stream import Audit
from kafka_share_proxy.views import audit_events
from kafka_share_proxy.views.audit_events import ViewAudit, hashes_of
from kafka_share_proxy.views.fetch.key_filter import TAG
from kafka_share_proxy.views.model.plans import Plan
from kafka_share_proxy.views.model.slots import EvenCut, KeyFilterCut, RangeCut, StripeCut
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.records import compression
from kafka_share_proxy.wire.records.key_hash import murmur2

from tests.support import audit_lines
from tests.support.view_ports import ViewWorld, partitions_of

KEYS = [b"k%d" % number for number in range(40)]


class AuditedWorld(ViewWorld):
    def __init__(self) -> None:
        super().__init__()
        self.audit = Audit(self.timers, 1000, looks_per_s=10.0)
        self.audit.keys.workers = self.views.workers
        self.views.reads.audit = ViewAudit(self.audit)

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        self.audit.end()
        log_lines = self.audit.log.take(1_000_000, "p", "c", bytes.hex)
        return [event for event in audit_lines.events(log_lines) if event["kind"] in kinds]


@pytest.fixture
def world() -> AuditedWorld:
    return AuditedWorld()


def test_a_reader_of_a_view_is_reported_with_its_slot_and_range(world: AuditedWorld) -> None:
    """Rows and bytes looked through, and given; the response of a second is one event."""
    topic = world.topic("t")
    world.produce(topic, KEYS)
    view = world.view("__view.r4.t")
    data = world.fetch(world.connect(), {view: {1: 0}}).message
    records = partitions_of(data)[view, 1].records
    world.fetch(world.connect(), {view: {1: 20}})
    (fetch,) = world.events("fetch")
    mine = [at for at, key in enumerate(KEYS) if murmur2(key) * 4 >> 32 == 1]
    shown = {name: fetch[name] for name in ("reader", "view", "slot", "client", "lo", "hi", "ranges", "group", "topic")}
    assert shown == {
        "reader": "view", "view": "__view.r4.t", "slot": 1, "client": "test-client", "lo": 1 << 30, "hi": 1 << 31,
        "ranges": 1, "group": None, "topic": topic.topic_id.hex(),
    }  # fmt: skip
    size = len(topic.logs[0].batches[0][2])
    assert (fetch["requests"], fetch["first"], fetch["last"]) == (2, 0, 39)
    assert (fetch["rows_in"], fetch["bytes_in"]) == (80, 2 * size)
    assert fetch["rows_out"] == len(mine) + len([at for at in mine if at >= 20])
    assert 0 < fetch["bytes_out"] < size + len(records)


def test_a_filter_is_reported_with_the_hull_of_its_ranges(world: AuditedWorld) -> None:
    topic = world.topic("t")
    world.produce(topic, KEYS)
    message = messages.KeyFilter
    ranges = [message.HashRange(first=10, last=19), message.HashRange(first=1 << 31, last=HASH_SPACE - 1)]
    requested = message(filter_version=1, hash=1, ranges=ranges, keys=[], null_keys=0)
    field = registry.codec_of(message, 0).encode(requested)
    world.fetch(world.connect(), {topic.topic_id: {0: 0}}, tags={TAG: field})
    (fetch,) = world.events("fetch")
    matching_keys = [key for key in KEYS if murmur2(key) >= 1 << 31]
    assert (fetch["reader"], fetch["view"], fetch["slot"]) == ("filter", None, None)
    assert (fetch["lo"], fetch["hi"], fetch["ranges"], fetch["rows_out"]) == (10, HASH_SPACE, 2, len(matching_keys))


def test_a_response_without_anything_is_no_event(world: AuditedWorld) -> None:
    world.topic("t")
    view = world.view("__view.r4.t")
    world.fetch(world.connect(), {view: {1: 0}}, wait_ms=0)
    assert world.events("fetch") == []


@pytest.mark.parametrize("codec", [compression.NONE, compression.ZSTD])
def test_a_read_is_counted_once_for_all_slots(world: AuditedWorld, codec: int) -> None:
    """Once, however many slots share it; its keys are seen, compressed or not."""
    topic = world.topic("t")
    for _ in range(12):
        world.produce(topic, KEYS, codec=codec)
    view = world.view("__view.r2.t")
    for slot in range(2):
        world.fetch(world.connect(), {view: {slot: 0}})
    load, hot = world.events("load", "hot_keys")
    assert load["rows"] == load["sampled"] == 480
    assert load["bytes"] == sum(len(data) for _, _, data in topic.logs[0].batches)
    expected: dict[str, int] = {}
    for key in KEYS:
        bucket = str(murmur2(key) >> 20)
        expected[bucket] = expected.get(bucket, 0) + 12
    assert {bucket: rows for bucket, (rows, _) in load["buckets"].items()} == expected
    assert len(hot["keys"]) == 32
    assert (hot["sampled"], hot["sample_size"]) == (480, 240)
    assert {rows for _, rows in hot["keys"]} == {12}


def test_a_plan_is_reported_when_it_becomes_known(world: AuditedWorld) -> None:
    catalog = world.views.catalog
    catalog.on_plan = world.views.reads.audit.plan_loaded
    plan = Plan("hot", (0, 100, 5000), "orders")
    assert catalog.add_plan(plan)
    assert catalog.add_plan(plan)
    (event,) = world.events("plan_loaded")
    assert (event["plan_id"], event["slots"], event["topic"], event["partition"]) == ("hot", 3, "orders", None)
    assert event["ranges"] == [[0, 100, 0], [100, 5000, 1], [5000, HASH_SPACE, 2]]


@pytest.mark.parametrize("slots", [1, 3, 7, 1024])
def test_even_slots_have_the_hashes_that_the_cut_gives_them(slots: int) -> None:
    cut = EvenCut(slots)
    ranges = [hashes_of(cut, slot) for slot in range(slots)]
    assert [each.low for each in ranges] == [0, *(each.end for each in ranges[:-1])]
    assert ranges[-1].end == HASH_SPACE
    for slot, each in enumerate(ranges):
        assert (each.low * slots >> 32, (each.end - 1) * slots >> 32, each.ranges) == (slot, slot, 1)


def test_slots_of_plans_and_stripes_and_single_keys() -> None:
    plan = RangeCut((0, 10, 20), (1, 0, 1))
    assert hashes_of(plan, 0) == Hashes(10, 20, 1)
    assert hashes_of(plan, 1) == Hashes(0, HASH_SPACE, 2)
    nothing = Hashes(0, HASH_SPACE, 0)
    assert hashes_of(StripeCut(4), 2) == nothing
    assert hashes_of(KeyFilterCut(keys=(b"a",)), 0) == nothing


def test_remembered_hashes_of_slots_are_bounded(world: AuditedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_events, "HASHES_MAX", 2)
    topic = world.topic("t")
    world.produce(topic, KEYS)
    view = world.view("__view.r8.t")
    for slot in range(8):
        world.fetch(world.connect(), {view: {slot: 0}})
        assert len(world.views.reads.audit._hashes) <= 2
    assert len(world.events("fetch")) == 8
