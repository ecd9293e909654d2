"""The queue of events: numbered without gaps, bounded, and with what is summed up in time."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.audit.events import Place
from kafka_share_proxy.audit.fetches import GivenRecords, Reader
from kafka_share_proxy.audit.loads import SAMPLED_PLACES_MAX
from kafka_share_proxy.audit.stream import SCOPE_EVERY_S, Audit
from kafka_share_proxy.wire.records.key_samples import ROW, KeySample

from tests.support import audit_lines
from tests.support.manual_timers import WALL_MS, ManualTimers

PLACE = Place("t", 0)


def json_value(audit: Audit) -> list[dict[str, Any]]:
    return audit_lines.waiting(audit.log)


def kinds(audit: Audit) -> list[str]:
    return [event["kind"] for event in json_value(audit)]


def test_events_are_numbered_and_stamped() -> None:
    timers = ManualTimers()
    audit = Audit(timers, 100)
    for _ in range(2):
        audit.offer("forced_release", PLACE, "g", "m", (1, 1))
        timers.advance(1)
    assert [(event["seq"], event["ts_ms"]) for event in json_value(audit)] == [(1, WALL_MS), (2, WALL_MS + 1000)]


def test_events_that_find_no_room_leave_a_gap_in_seq() -> None:
    audit = Audit(ManualTimers(), 2)
    for _ in range(5):
        audit.offer("forced_release", PLACE, "g", "m", (1, 1))
    assert [event["seq"] for event in json_value(audit)] == [1, 2]
    audit.offer("forced_release", PLACE, "g", "m", (1, 1))
    assert ([event["seq"] for event in json_value(audit)], audit.log.dropped, audit.log.seq) == ([6], 3, 6)


def test_fetches_are_reported_by_the_second_and_load_by_the_interval() -> None:
    timers = ManualTimers()
    audit = Audit(timers, 100, load_interval_s=60.0)
    audit.fetches.add(Reader("share", PLACE, "g"), GivenRecords(0, 9, 10, 10, 100, 100))
    audit.loads.of(PLACE).rows = 10
    audit.tick()
    assert kinds(audit) == []
    timers.advance(1)
    audit.tick()
    assert kinds(audit) == ["fetch"]
    timers.advance(59)
    audit.tick()
    audit.tick()
    assert kinds(audit) == ["load"]


def test_sums_are_reported_at_the_end() -> None:
    audit = Audit(ManualTimers(), 100)
    called: list[str] = []
    audit.on_interval.append(lambda: called.append("marks"))
    audit.fetches.add(Reader("share", PLACE, "g"), GivenRecords(0, 9, 10, 10, 100, 100))
    audit.loads.of(PLACE).rows = 10
    audit.end()
    assert (kinds(audit), called) == (["fetch", "load"], ["marks"])


def test_limited_coverage_is_reported_when_it_changes_and_every_hour() -> None:
    timers = ManualTimers()
    audit = Audit(timers, 100)
    for sees in ("part", "part", "none"):
        audit.report_coverage("views", sees, "why")
    assert [(event["subject"], event["sees"]) for event in json_value(audit)] == [("views", "part"), ("views", "none")]
    timers.advance(SCOPE_EVERY_S)
    audit.tick()
    audit.tick()
    assert kinds(audit) == ["scope"]


def test_few_heavy_events_are_taken_at_a_time() -> None:
    """A load with all its buckets takes as long to write as many others."""
    audit = Audit(ManualTimers(), 10_000)
    for partition in range(SAMPLED_PLACES_MAX):
        audit.loads.add_sample(Place("t", partition), [KeySample(ROW.pack(1, 1), b"")], 1)
    audit.report_load()
    assert len(audit.log) == 2 * SAMPLED_PLACES_MAX
    assert 1 <= len(audit.log.take(200, "p", "c", bytes.hex)) <= 10
    assert len(audit.log.take(1, "p", "c", bytes.hex)) == 1


def test_samples_are_added_to_the_load_of_their_partition() -> None:
    audit = Audit(ManualTimers(), 100)
    audit.keys._on_sample(PLACE, [KeySample(ROW.pack(1, 1), b"")], 1)
    audit.report_load()
    assert kinds(audit) == ["load", "hot_keys"]
