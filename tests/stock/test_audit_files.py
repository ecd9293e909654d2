"""Audit files of a proxy in front of real brokers: rotated, cut short by its death, and read line by line."""

from __future__ import annotations

import json
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.key_hash import murmur2
from kafka_share_proxy.wire.records.records import Record

from tests.support import audit_lines
from tests.support.brokers import Running
from tests.support.raw import Topic, until
from tests.support.worlds import ACCEPT, World

pytestmark = [pytest.mark.broker]

RECORDS = 600
ROTATIONS_MAX = 100
"""While the files are read."""
SETTINGS: dict[str, Any] = {"commits": {"state": "memory"}, "share_groups": {"state": "memory"}}


class AuditedFront:
    """A proxy with audit in small files."""

    def __init__(self, running: Running, kafka: Cluster, folder: Path) -> None:
        self.file = folder / "audit.jsonl"
        audit = {"file": str(self.file), "file_bytes": 4096, "files_kept": 1000, "load_interval_s": 1}
        self.front = running.front(kafka.bootstrap, SETTINGS | {"audit": audit})

    def lines(self) -> list[bytes]:
        """Return the lines of all files, the oldest first, ends included; read again after a rotation."""
        for _ in range(ROTATIONS_MAX):
            with suppress(FileNotFoundError):
                return self._read()
        raise AssertionError("the files are rotated without end")

    def _read(self) -> list[bytes]:
        numbered = sorted(self.file.parent.glob("audit.jsonl.*"), key=lambda path: -int(path.suffix[1:]))
        written = [path for path in (*numbered, self.file) if path.exists()]
        return [line for path in written for line in path.read_bytes().splitlines(keepends=True)]

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the events of complete lines."""
        log_events = audit_lines.events(
            line for line in self.lines() if line.startswith(b"{") and line.endswith(b"}\n")
        )
        return [event for event in log_events if not kinds or event["kind"] in kinds]


@pytest.fixture
def audited(running: Running, kafka_39: Cluster, tmp_path: Path) -> AuditedFront:
    return AuditedFront(running, kafka_39, tmp_path)


@pytest.fixture
def world(audited: AuditedFront, fresh: Callable[[str], str]) -> Iterator[World]:
    audited_world = World("proxy", audited.front.bootstrap, fresh("a")[-20:].strip("-"))
    yield audited_world
    audited_world.close()


def filled(world: World, batches: int = 1) -> Topic:
    """Fill a topic with this many batches, every third record with one key."""
    topic = world.topic()
    keys = [b"hot" if at % 3 == 0 else b"key-%d" % at for at in range(RECORDS)]
    size = RECORDS // batches
    for base in range(0, RECORDS, size):
        batch_records = [Record(key, b"v" * 200, offset=at) for at, key in enumerate(keys[base : base + size])]
        world.raw.append(topic, records.build_batch(0, batch_records))
    return topic


def play(world: World, topic: Topic, group: str) -> int:
    """A member takes and accepts all records, ten or a batch at a time; how many ranges it was given."""
    member, ranges, done = world.member(group, "A", [topic]), 0, 0
    while done < RECORDS:
        response = member.fetch(topic, silent=True, records=10, batch=10)
        for first, last, _ in response.acquired(topic):
            member.acknowledge((topic, 0, first, last, ACCEPT), silent=True)
            done, ranges = done + last - first + 1, ranges + 1
    member.disconnect()
    return ranges


def test_files_contain_every_event_once_across_rotation_and_death(world: World, audited: AuditedFront) -> None:
    """Given a proxy that is killed within a line, when the next one continues with the file, nothing else is lost."""
    topic = filled(world, batches=60)
    ranges = play(world, topic, world.group("before"))
    until(lambda: len(audited.events("settle")) == ranges and _ends_with_load(audited), "all events")
    assert len(audited.lines()) > 100
    assert len(list(audited.file.parent.iterdir())) > 5, "files were rotated"
    child = audited.front.child
    assert child is not None
    os.kill(child.pid, signal.SIGKILL)
    child.kill()
    with audited.file.open("r+b") as file:
        file.truncate(audited.file.stat().st_size - 7)
    cut = audited.lines()[-1]
    assert not cut.endswith(b"\n")

    audited.front.start()
    again = World("proxy", audited.front.bootstrap, topic.name[-20:].strip("-"))
    ranges = play(again, topic, again.group("after"))
    again.close()
    until(lambda: sum(e["group"].endswith("after") for e in audited.events("settle")) == ranges, "all events")
    whole = audited.lines()
    assert [line for line in whole if not _is_event(line)] == [cut + b"\n"]
    numbers = defaultdict(list)
    for event in audited.events():
        numbers[event["proxy_id"]].append(event["seq"])
    assert len(numbers) == 2
    for offsets in numbers.values():
        assert offsets == list(range(1, len(offsets) + 1))
    for name in ("before", "after"):
        _is_every_offset_once(audited, name)


def _ends_with_load(audited: AuditedFront) -> bool:
    """True if the line that will be cut is no delivery."""
    log_events = audited.events()
    return bool(log_events) and log_events[-1]["kind"] in ("load", "hot_keys")


def _is_event(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _is_every_offset_once(audited: AuditedFront, group: str) -> None:
    for kind in ("acquire", "settle"):
        mine = [event for event in audited.events(kind) if event["group"].endswith(group)]
        offsets = [offset for event in mine for offset in range(event["first"], event["last"] + 1)]
        assert sorted(offsets) == list(range(RECORDS))


def test_load_and_hot_keys_of_a_large_batch(world: World, audited: AuditedFront) -> None:
    """600 records of 200 bytes in one batch: each is counted by bucket, and the heaviest key is first."""
    topic = filled(world)
    play(world, topic, world.group())
    until(lambda: sum(load["rows"] for load in audited.events("load")) == RECORDS, "the load")
    hot = until(lambda: audited.events("hot_keys"), "the hot keys")
    loads = audited.events("load")
    assert sum(load["sampled"] for load in loads) % RECORDS == 0, "a batch is seen whole, or again with a later read"
    assert {each["sampled"] % (RECORDS // 3) for each in hot} == {0}, "of each look a third, neighbours"
    hashed, counted = hot[0]["keys"][0]
    assert hashed == murmur2(b"hot")
    assert counted <= hot[0]["sampled"] // 3 <= counted + hot[0]["error"]


def test_share_groups_of_the_brokers_are_reported_as_they_pass(
    running: Running, kafka_43: Cluster, tmp_path: Path, fresh: Callable[[str], str]
) -> None:
    """Deliveries and acknowledgements; and what cannot be seen is said."""
    audited = AuditedFront(running, kafka_43, tmp_path)
    world = World("proxy", audited.front.bootstrap, fresh("f")[-20:].strip("-"))
    topic = filled(world)
    group = world.group()
    play(world, topic, group)
    world.close()
    hot = until(lambda: audited.events("hot_keys"), "the hot keys, which stand behind the load")
    _is_every_offset_once(audited, group)
    offsets = audited.events("acquire", "settle")
    assert {(event["by"], event["topic"]) for event in offsets} == {("brokers", topic.name)}
    settles = audited.events("settle")
    assert all(event["attempt"] >= 1 and event["t_acquire_ms"] <= event["ts_ms"] for event in settles)
    assert {event["start_offset"] for event in settles} == {None}
    assert [event["sees"] for event in audited.events("scope") if event["subject"] == "share_groups"] == ["part"]
    assert hot[0]["keys"][0][0] == murmur2(b"hot")


def test_readers_of_views_and_individual_commits_are_reported(world: World, audited: AuditedFront) -> None:
    """The slots' ranges are the hash space, and each record is given once."""
    topic, raw = filled(world), world.raw
    view = until(lambda: raw.view(f"__view.r3.{topic.name}"), "the view")
    requested = [{"partition": at, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for at in range(3)]
    raw.send_request(
        "Fetch", 12, on=raw.connect(raw.node(topic.leaders[0])), replica_id=-1, max_wait_ms=500, min_bytes=1,
        max_bytes=50 << 20, session_id=0, session_epoch=-1, topics=[{"topic": view.name, "partitions": requested}],
    )  # fmt: skip
    group = "committing-" + topic.name
    entry = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "ic/1;7-8"}
    raw.send_request(
        "OffsetCommit", 8, on=raw.on_coordinator(group), group_id=group, generation_id_or_member_epoch=-1,
        topics=[{"name": topic.name, "partitions": [entry]}],
    )  # fmt: skip
    until(lambda: audited.events("commit") and audited.events("fetch"), "the events")
    (commit,) = audited.events("commit")
    assert (commit["group"], commit["topic"], commit["offset"], commit["ranges"]) == (group, topic.name, 5, [[7, 8]])
    fetches = sorted(audited.events("fetch"), key=lambda event: event["slot"])
    assert [(event["view"], event["slot"], event["topic"]) for event in fetches] == [
        (view.name, slot, topic.name) for slot in range(3)
    ]
    assert [fetches[0]["lo"], *(event["hi"] for event in fetches)] == [
        0,
        *(event["lo"] for event in fetches[1:]),
        1 << 32,
    ]
    assert [event["rows_in"] for event in fetches] == [RECORDS] * 3
    assert sum(event["rows_out"] for event in fetches) == RECORDS
