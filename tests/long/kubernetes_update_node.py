"""Updates of the chart's proxies under load (kubernetes_update.py runs this file on a small node).

Members of a share group on the stock Java client and a stock producer use the Service. Every pod is replaced, with
another address. Nothing may be lost, and nothing settled twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster as Kafka

from tests.support import rolling
from tests.support.brokers import OLD, Running
from tests.support.chart_pods import HOST, PORTS, SERVICE_IP, pods_of_chart, with_service_address
from tests.support.node_network import Node, Service
from tests.support.raw import Raw, until
from tests.support.rolling import Outcome, Plan, Producing
from tests.support.settlements import gaps
from tests.support.share_members import ShareMember
from tests.support.small_replicas import Replicas

GROUP, TOPIC = rolling.GROUP, rolling.TOPIC
PLAN = Plan(rate=300, partitions=3, members=3)
BEFORE_S, AFTER_S = 5.0, 5.0
DRAINED_S = 120.0
TOLD_S = 15.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return with_service_address(Node(tmp_path_factory.mktemp("node")))


@pytest.fixture
def kafka(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    running = Running(tmp_path_factory.mktemp("brokers"))
    yield running.cluster(OLD)
    running.close()


class Load:
    """A producer and the members of a share group, by the address of the Service."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.outcome = Outcome()
        self._bootstrap = bootstrap
        with Raw(bootstrap) as raw:
            raw.create_topic(TOPIC, PLAN.partitions)
            raw.configure_group(GROUP, {"share.auto.offset.reset": "earliest"})
        names = [f"member-{number}" for number in range(PLAN.members)]
        self._members = [ShareMember(name, bootstrap, GROUP, TOPIC, folder) for name in names]
        self._producing = Producing(bootstrap, PLAN, self.outcome)

    def all_work(self) -> bool:
        """Return True if every member has settled records."""
        self.listen()
        return len({told.member for each in self.outcome.ledger.confirmed.values() for told in each}) == PLAN.members

    def listen(self) -> None:
        for member in self._members:
            assert member.child.status is None, f"{member.name} ended by itself: {member.child.output()}"
            member.listen(self.outcome.ledger)

    def finish(self) -> None:
        """Stop the producer, and wait until the group has settled everything."""
        self._producing.stop()
        self.outcome.until = time.monotonic_ns()
        until(self._nothing_is_left, "the group to settle everything", DRAINED_S, 0.1)
        with suppress(TimeoutError):  # then the ledger says what is not settled
            until(self._all_told, "members to hear of it", TOLD_S)

    def kill(self) -> None:
        for member in self._members:
            member.child.kill()

    def _all_told(self) -> bool:
        self.listen()
        return not any(self.outcome.ledger.never_settled(self.outcome.produced))

    def _nothing_is_left(self) -> bool:
        self.listen()
        with suppress(OSError, TimeoutError), Raw(self._bootstrap) as raw:
            described = raw.send_request(
                "DescribeShareGroupOffsets", 1, on=raw.on_coordinator(GROUP),
                groups=[{"group_id": GROUP, "topics": None}],
            ).groups[0]  # fmt: skip
            parts: list[Any] = [part for topic in described.topics for part in topic.partitions]
            return len(parts) == PLAN.partitions and all(part.lag == 0 and not part.error_code for part in parts)
        return False


def updated(pods: Replicas, update: Callable[[], None], folder: Path) -> Outcome:
    """Return what happened to the load while the pods were updated."""
    with Service(SERVICE_IP, PORTS, pods.endpoints) as service:
        load = Load(f"{HOST}:9092", folder)
        try:
            until(load.all_work, "every member to settle records", 90)
            load.outcome.since = time.monotonic_ns()
            _listen_for(load, BEFORE_S)
            began = time.monotonic()
            updating = threading.Thread(target=update)
            updating.start()
            while updating.is_alive():
                _listen_for(load, 0.2)
            took_s = time.monotonic() - began
            _listen_for(load, AFTER_S)
            load.finish()
        except (AssertionError, TimeoutError):
            print(pods.described()[-20_000:])
            raise
        finally:
            load.kill()
    _report(load.outcome, len(pods.former), took_s)
    print(f"{service.connections} connections through the Service, {service.refused} refused")
    return load.outcome


def _report(outcome: Outcome, proxies: int, took_s: float) -> None:
    ledger = outcome.ledger
    again = sum(len(each) - 1 for each in ledger.deliveries.values())
    print(
        f"\n{len(outcome.produced):,} records, {len(ledger.confirmed):,} confirmed, {again:,} delivered again; "
        f"{proxies} replaced in {took_s:.0f} s; longest time without a settled record "
        f"{outcome.longest_gap_s():.1f} s, without a produced one "
        f"{gaps(outcome.produced_at, outcome.since, outcome.until)[0][0] / 1e9:.1f} s"
    )
    unconfirmed = [place for place in outcome.produced.values() if place not in ledger.confirmed]
    for place in unconfirmed:  # the group has no lag: they are settled, and the response was lost
        print(f"settled, unconfirmed: {place} {ledger.failed.get(place)}, delivered {ledger.deliveries.get(place)}")


def assert_in_order(pods: Replicas, outcome: Outcome) -> None:
    """Check that nothing was lost or settled twice, and that every proxy ended by itself in time."""
    assert outcome.faults() == []
    for pod in pods.former:
        assert pod.container("proxy").status == 0, pods.described()[-20_000:]
        assert [event.what for event in pod.events if event.what == "SIGKILL"] == []


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_rolling_update_of_a_fleet_loses_nothing_and_settles_nothing_twice(
    node: Node, kafka: Kafka, tmp_path: Path
) -> None:
    with pods_of_chart(node, kafka, "fleet") as fleet:
        outcome = updated(fleet, fleet.update, tmp_path)
        assert len(fleet.former) == len(fleet.pods) == 3
        assert_in_order(fleet, outcome)


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_update_of_a_single_proxy_loses_nothing_and_settles_nothing_twice(
    node: Node, kafka: Kafka, tmp_path: Path
) -> None:
    with pods_of_chart(node, kafka, "single") as single:
        outcome = updated(single, single.surge, tmp_path)
        assert len(single.former) == len(single.pods) == 1
        assert_in_order(single, outcome)


def _listen_for(load: Load, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        load.listen()
        time.sleep(0.05)
