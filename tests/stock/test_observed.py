"""Outputs of a running proxy about its share groups: admin listener, command `groups`, audit events in file and
topic.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.support import audit_lines
from tests.support.brokers import Running
from tests.support.raw import LIMIT_S, Raw, Topic, until, values_of
from tests.support.worlds import ACCEPT, RENEW, World

pytestmark = [pytest.mark.broker]

AUDIT_TOPIC = "observed-audit"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit")


@pytest.fixture(scope="module")
def front(running: Running, kafka_39: Cluster, folder: Path) -> Front:
    with Raw(kafka_39.bootstrap) as raw:
        raw.create_topic(AUDIT_TOPIC, 2)
    settings: dict[str, Any] = {
        "commits": {"state": "memory"},
        "share_groups": {"state": "memory", "renewal_limits": [{"groups": "*bounded*", "renewals": 1}]},
        "audit": {"file": str(folder / "audit.jsonl"), "topic": AUDIT_TOPIC, "load_interval_s": 1},
    }
    return running.front(kafka_39.bootstrap, settings)


@pytest.fixture
def w(front: Front, fresh: Callable[[str], str]) -> Iterator[World]:
    world = World("proxy", front.bootstrap, fresh("w")[-20:].strip("-"))
    yield world
    world.close()


def events(folder: Path) -> list[dict[str, Any]]:
    path = folder / "audit.jsonl"
    return audit_lines.events(path.read_bytes().splitlines()) if path.exists() else []


def groups(front: Front, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "kafka_share_proxy",
        "groups",
        *arguments,
        "--admin",
        f"127.0.0.1:{front.admin_port}",
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def test_locks_are_shown_and_taken_back(w: World, front: Front, folder: Path) -> None:
    """Given a member that holds records, when they are released by command, another one gets them; audit says so."""
    topic = w.topic()
    w.raw.produce(topic, 5)
    group = w.group()
    holder = w.member(group, "A", [topic])
    assert holder.take(topic).acquired(topic) == [(0, 4, 1)]
    holder.acknowledge((topic, 0, 2, 2, RENEW), renew=True)

    is_ok, text = front.send_request(f"/groups/{group}")
    view = json.loads(text)
    assert is_ok
    assert [(lock["first"], lock["last"], lock["renewals"]) for lock in view["locks"]] == [
        (0, 1, 0),
        (2, 2, 1),
        (3, 4, 0),
    ]
    assert view["partitions"][0]["oldest_unsettled"] == 0
    shown = groups(front, group)
    assert (shown.returncode, topic.name in shown.stdout) == (0, True)
    assert group in groups(front).stdout

    done = groups(front, group, "--release", holder.member_id)
    assert done.stdout.startswith("5 records of"), done
    other = w.member(group, "B", [topic])
    assert other.take(topic).acquired(topic) == [(0, 4, 2)]

    def events_of_kind(kind: str) -> list[dict[str, Any]]:
        return [event for event in events(folder) if (event["group"], event["kind"]) == (group, kind)]

    until(lambda: len(events_of_kind("settle")) == 3, "the settles of the release")
    (forced,) = events_of_kind("forced_release")
    assert (forced["member"], forced["records"], forced["ranges"]) == (holder.member_id, 5, 3)
    assert {event["outcome"] for event in events_of_kind("settle")} == {"forced_release"}


def test_a_bounded_renewal_is_refused(w: World, front: Front) -> None:
    """The second renewal gets 121, and the log names the member."""
    topic = w.topic()
    w.raw.produce(topic, 1)
    member = w.member(w.group("bounded"), "A", [topic])
    member.take(topic)
    codes = [member.acknowledge((topic, 0, 0, 0, RENEW), renew=True).code(topic) for _ in range(2)]
    assert codes == [0, 121]
    assert any("share-renewal-refused" in line and member.member_id in line for line in front.output().splitlines())


def test_audit_reports_deliveries_in_file_and_topic(w: World, folder: Path, kafka_39: Cluster) -> None:
    """Every acquire has its settle, seq has no gap, and the topic has the same events."""
    topic = w.topic()
    w.raw.produce(topic, [b"a", b"b", b"c"])
    member = w.member(w.group(), "A", [topic])
    member.take(topic)
    member.acknowledge((topic, 0, 0, 2, ACCEPT))

    def mine(kind: str) -> list[dict[str, Any]]:
        return [event for event in events(folder) if (event["topic"], event["kind"]) == (topic.name, kind)]

    until(lambda: sum(load["hold_ms"] for load in mine("load")) and mine("hot_keys"), "the load of the topic")
    (acquire,), (settle,) = mine("acquire"), mine("settle")
    assert (acquire["first"], acquire["last"], acquire["attempt"], acquire["member"]) == (0, 2, 1, member.member_id)
    assert (settle["outcome"], settle["renews"]) == ("accept", 0)
    assert settle["t_acquire_ms"] <= settle["ts_ms"]
    assert sum(rows for load in mine("load") for rows, _ in load["buckets"].values()) == 3
    assert sum(hot["null_keys"] for hot in mine("hot_keys")) == 3
    lines = events(folder)
    assert [event["seq"] for event in lines] == list(range(1, len(lines) + 1))
    assert len({event["proxy_id"] for event in lines}) == 1

    with Raw(kafka_39.bootstrap) as raw:
        audit = raw.topic(AUDIT_TOPIC)
        expected = {event["seq"] for event in lines}
        until(lambda: expected <= {event["seq"] for event in _in_topic(raw, audit)}, "the events in the topic")


def _in_topic(raw: Raw, topic: Topic) -> list[dict[str, Any]]:
    log_events = []
    for partition in topic.leaders:
        expected = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        response = raw.send_request(
            "Fetch", 12, on=raw.connect(raw.node(topic.leaders[partition])), replica_id=-1, max_wait_ms=0, min_bytes=0,
            max_bytes=1 << 20, session_id=0, session_epoch=-1, topics=[{"topic": topic.name, "partitions": [expected]}],
        )  # fmt: skip
        log_events += [audit_lines.event(value) for _, value in values_of(response.responses[0].partitions[0].records)]
    return log_events
