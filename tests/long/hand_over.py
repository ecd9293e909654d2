"""An upgrade of brokers in place, 3.9.1 to 4.3.0, under a share group at work, then its hand-over and its take-back.

Four Java members and a producer work throughout. Nothing is lost and nothing is settled twice. The pauses are printed.
KSP_LONG_BROKERS says how many brokers.

    tests/run tests/long/hand_over.py -s
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from kafka_share_proxy.app.commands import groups_command
from kafka_share_proxy.localkafka.addresses import HOST
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.values import Address

from tests.long.key_order import COMMANDS, KeyedMember
from tests.support.brokers import NEW, OLD, Running
from tests.support.keyed_ledger import KeyedLedger, Place
from tests.support.raw import Raw, until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

BROKERS = int(os.environ.get("KSP_LONG_BROKERS", "3"))
MEMBERS, PARTITIONS, RATE = 4, 4, 200
WORK_S = 10.0
"""Seconds of work on each side."""
RELEASED, LOCK_S = 0.01, 15.0
SETTINGS = {
    "share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(round(LOCK_S * 1000)),
    "share.delivery.count.limit": "10",
}  # fmt: skip
SETTLE_S = 120.0


class Producing:
    """A thread that appends records at a rate, and notes the places of those that are stored."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        options = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 180_000}
        self._producer, self._topic = confluent_kafka.Producer(options), topic
        self._over = threading.Event()
        self.stored: dict[Place, bytes] = {}
        self.failed: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        started_at = time.monotonic()
        for number in count():
            if self._over.is_set():
                return
            self._producer.produce(self._topic, b"v", key=b"%d" % number, on_delivery=self._on_delivery)
            while (ahead := started_at + number / RATE - time.monotonic()) > 0:
                self._producer.poll(min(ahead, 0.1))
            self._producer.poll(0)

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.stored[message.partition(), message.offset()] = message.key()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        assert self._producer.flush(180) == 0


class Work:
    """The group at work."""

    def __init__(self, bootstrap: str, group: str, topic: str, folder: Path) -> None:
        self.ledger = KeyedLedger()
        arguments = [bootstrap, group, topic]
        self.members = [
            KeyedMember(
                f"java-{number}",
                [*COMMANDS["java"](), *arguments, str(number), str(RELEASED), "0", "0", "100"],
                folder / f"java-{number}.log",
            )
            for number in range(MEMBERS)
        ]

    def listen(self) -> KeyedLedger:
        for member in self.members:
            member.listen(self.ledger)
        return self.ledger

    def goes_on(self, seconds: float) -> None:
        """Let it work, and check that it settles records."""
        before = len(self.listen().settled())
        time.sleep(seconds)
        until(lambda: len(self.listen().settled()) > before, "records to be settled", SETTLE_S, 0.5)

    def pause_s(self, since: int, to: int) -> float:
        """Return the longest time without a confirmed settle within these nanoseconds of the monotonic clock."""
        times = sorted(
            each.confirmed
            for attempts in self.listen().attempts.values()
            for each in attempts
            if each.confirmed and since <= each.confirmed <= to
        )
        return max(later - earlier for earlier, later in pairwise([since, *times, to])) / 1e9

    def tried(self) -> set[Place]:
        """Return the records with a settle that was not refused. Only that of a lost connection may not be confirmed:
        if it was not stored, the record is delivered again after its lock.
        """
        attempts = self.listen().attempts.items()
        return {place for place, each in attempts if any(one.may_settle() for one in each)}

    def is_quiet(self) -> bool:
        """Return True if nothing was delivered for longer than a lock."""
        latest = max((times[-1] for times in self.listen().deliveries.values()), default=0)
        return time.monotonic_ns() - latest > (LOCK_S + 2) * 1e9

    def unheard(self) -> list[int]:
        """Return when the settles were sent of records without a confirmed one."""
        settled = self.ledger.settled()
        return [each[-1].sent for place, each in self.ledger.attempts.items() if place not in settled]

    def settled_twice(self) -> list[Place]:
        """Return the records of which more than one settle was confirmed."""
        return [
            place
            for place, attempts in self.ledger.attempts.items()
            if sum(each.may_settle() and each.confirmed is not None and each.error is None for each in attempts) > 1
        ]

    def close(self) -> None:
        for member in self.members:
            member.child.kill()
        self.listen()


def in_sync(kafka: Cluster) -> bool:
    """Return True if every replica of every partition is in sync."""
    with Raw(kafka.bootstrap) as raw:
        response = raw.send_request("Metadata", 12, topics=None, allow_auto_topic_creation=False)
    partitions = [partition for topic in response.topics for partition in topic.partitions]
    return len(response.brokers) == BROKERS and all(
        len(each.isr_nodes) == len(each.replica_nodes) and each.leader_id >= 0 for each in partitions
    )


def finalize_all(kafka: Cluster) -> None:
    """Do what `kafka-features.sh upgrade --release-version` does, as far as share groups need it."""
    with Raw(kafka.bootstrap) as raw:
        supported = raw.send_request(  # without the names the broker refuses
            "ApiVersions", 4, client_software_name="raw", client_software_version="1"
        ).supported_features
        levels = {each.name: each.max_version for each in supported}
        for feature, level in (("metadata.version", levels["metadata.version"]), ("share.version", 1)):
            updates = [{"feature": feature, "max_version_level": level, "upgrade_type": 1}]
            response = raw.send_request("UpdateFeatures", 1, timeout_ms=30_000, feature_updates=updates)
            assert response.error_code == 0, (feature, response)


def moved(work: Work, front: Front, group: str, action: str) -> str:
    """Move the group, and return how long it was without a settled record."""
    since = time.monotonic_ns()
    text = groups_command.move(Address(HOST, front.admin_port), group, action, 120, force=False)
    took = (time.monotonic_ns() - since) / 1e9
    work.goes_on(WORK_S)
    pause = work.pause_s(since, time.monotonic_ns())
    return f"{action}: {text}; the command took {took:.1f} s, members were without a settle for {pause:.1f} s"


@pytest.fixture
def upgraded(running: Running) -> Iterator[tuple[Cluster, Front]]:
    kafka = running.cluster(OLD, nodes=BROKERS)
    front = running.front(
        kafka.bootstrap, {"upstream": {"bootstrap": kafka.bootstrap.split(","), "metadata_interval_s": 5}}
    )
    yield kafka, front
    front.stop()


def test_group_at_work_is_upgraded_handed_over_and_taken_back_without_loss(
    upgraded: tuple[Cluster, Front], fresh: Callable[[str], str], tmp_path: Path
) -> None:
    kafka, front = upgraded
    topic, group = fresh("topic"), fresh("group")
    with Raw(front.bootstrap) as raw:
        raw.create_topic(topic, PARTITIONS)
        raw.configure_group(group, SETTINGS)
    producing, work = Producing(front.bootstrap, topic), Work(front.bootstrap, group, topic, tmp_path)
    figures = []
    try:
        work.goes_on(WORK_S)
        since = time.monotonic_ns()
        for _ in kafka.upgrade(NEW):
            until(lambda: in_sync(kafka), "the replicas to be in sync", SETTLE_S, 0.5)
        work.goes_on(WORK_S)
        pause = work.pause_s(since, time.monotonic_ns())
        figures.append(f"upgrade of {BROKERS} brokers {OLD} to {NEW}: longest time without a settle {pause:.1f} s")
        finalize_all(kafka)
        upgraded_at = time.monotonic_ns()
        until(lambda: "by group" in front.send_request("/readyz/share-groups")[1], "the proxy to notice", SETTLE_S)
        figures.append(moved(work, front, group, "hand-over"))
        assert groups_command.fetch(Address(HOST, front.admin_port), "/groups")["groups"] == []
        figures.append(moved(work, front, group, "take-back"))
        producing.stop()
        until(
            lambda: producing.stored.keys() <= work.tried() and work.is_quiet(), "all records to settle", SETTLE_S, 1.0
        )
    finally:
        work.close()
        print("\n" + "\n".join(figures))
        left = sorted(producing.stored.keys() - work.tried())
        print(f"not settled: {len(left)}, {[(each, len(work.ledger.deliveries.get(each, ()))) for each in left[:5]]}")
    lost, twice, unheard = sorted(producing.stored.keys() - work.tried()), work.settled_twice(), work.unheard()
    ledger = work.ledger
    print(
        f"{len(producing.stored)} records, {ledger.counts['D']} deliveries, {ledger.counts['R']} released, "
        f"{len(lost)} lost, {len(twice)} settled twice, {len(unheard)} settled over a "
        f"lost connection, at most {ledger.most_deliveries} deliveries of a record; "
        f"errors of members {dict(ledger.errors)}"
    )
    assert (lost, twice, producing.failed) == ([], [], [])
    assert [sent for sent in unheard if sent > upgraded_at] == [], "the moves confirm or refuse each acknowledgement"
