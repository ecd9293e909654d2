"""Hand-over of share groups from the proxy to Kafka 4.3.0, seen by members that stay."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.app.commands import groups_command
from kafka_share_proxy.app.commands.groups_command import NoResponse
from kafka_share_proxy.localkafka.addresses import HOST
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.values import Address

from tests.support.brokers import NEW, QUICK, Running
from tests.support.fleet import Fleet, far_group
from tests.support.raw import Raw, Topic, until
from tests.support.worlds import ACCEPT, Member, World

pytestmark = [pytest.mark.broker, pytest.mark.timeout(480)]

LOCAL = {"share_groups": {"serve": "local", "broker": QUICK}}
AUTO = {"share_groups": {"serve": "auto", "broker": QUICK}}
LOCK_MS = "30000"


class Case:
    """A group that began at a proxy with `serve: local`, now at one with `auto`, whose member holds offsets 0-9."""

    def __init__(self, running: Running, kafka: Cluster, name: str, folder: Path, **settings: str) -> None:
        self.kafka = kafka
        self.audited = folder / f"{name}.jsonl"
        before = running.front(kafka.bootstrap, LOCAL)
        world = World("before", before.bootstrap, name)
        self.topic = world.topic()
        self.group = world.group(lock_ms=LOCK_MS, **settings)
        world.raw.produce(self.topic, 10)
        world.member(self.group, topics=[self.topic]).heartbeat(epoch=-1)
        world.close()
        assert before.stop() == 0
        self.front: Front = running.front(kafka.bootstrap, AUTO | {"audit": {"file": str(self.audited)}})
        self.world = World("proxy", self.front.bootstrap, name)
        self.member: Member = self.world.member(self.group, "B", topics=[self.topic])
        assert self.member.take(self.topic).acquired(self.topic) == [(0, 9, 1)]
        self.outcome: Any = None

    @property
    def admin(self) -> Address:
        return Address(HOST, self.front.admin_port)

    def accept(self, first: int, last: int) -> None:
        assert self.member.acknowledge((self.topic, 0, first, last, ACCEPT)).error == 0

    def hand_over(self, wait_s: int, *, force: bool = False) -> str:
        return groups_command.move(self.admin, self.group, "hand-over", wait_s, force=force)

    def begin(self) -> threading.Thread:
        def run() -> None:
            try:
                self.outcome = self.hand_over(60)
            except NoResponse as reason:
                self.outcome = reason

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        until(lambda: self.phase() == "closing", "the hand-over to hold new records back")
        return thread

    def phase(self) -> str:
        try:
            return str(groups_command.fetch(self.admin, f"/groups/{self.group}/hand-over")["phase"])
        except NoResponse:
            return ""

    def events(self) -> list[dict[str, Any]]:
        """Return the audit events of hand-overs that are written."""
        lines = self.audited.read_text().splitlines() if self.audited.exists() else []
        return [event for event in map(json.loads, lines) if event["kind"] == "handed_over"]

    def state_at_brokers(self) -> int:
        native = World("native", self.kafka.bootstrap, "native")
        try:
            on = native.raw.on_coordinator(self.group)
            response = native.raw.send_request("ShareGroupDescribe", 1, on=on, group_ids=[self.group])
            return int(response.groups[0].error_code)
        finally:
            native.close()

    def rejoined(self) -> list[tuple[int, int, int]]:
        return rejoined(self.member, self.topic)


def rejoined(member: Member, topic: Topic) -> list[tuple[int, int, int]]:
    """Rejoin as a client does after UNKNOWN_MEMBER_ID and 122, and return what is acquired next."""
    assert member.heartbeat(silent=True, follow=False).error_code == UNKNOWN_MEMBER_ID
    assert member.fetch(topic, silent=True).error == SHARE_SESSION_NOT_FOUND
    member.epoch, member.assigned = 0, set()
    member.join([topic])
    return member.take(topic).acquired(topic)


UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND, SHARE_SESSION_NOT_FOUND = 25, 69, 122


@pytest.fixture
def cases(running: Running, kafka_43_quick: Cluster, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    started_cases: list[Case] = []

    def make(**settings: str) -> Case:
        started_cases.append(Case(running, kafka_43_quick, f"moves-{request.node.name[5:20]}", tmp_path, **settings))
        return started_cases[-1]

    yield make
    for case in started_cases:
        case.world.close()
        case.front.stop()  # the next case's proxy must own the share state


def take_nothing(member: Member, topic: Topic) -> None:
    assert member.fetch(topic, silent=True).acquired(topic) == []


def test_members_stay_and_no_record_is_lost_or_delivered_again(cases: Any) -> None:
    """New records wait until those in flight are settled. Settings move as well."""
    case = cases(deliveries="7")
    thread = case.begin()
    case.world.raw.produce(case.topic, 5)
    take_nothing(case.member, case.topic)
    assert case.member.heartbeat(silent=True).error_code == 0
    case.accept(0, 9)
    thread.join(60)
    assert "is served by the brokers" in str(case.outcome)
    assert case.rejoined() == [(10, 14, 1)]
    assert case.state_at_brokers() == 0
    (event,) = until(case.events, "the audit event")
    assert (event["group"], event["partitions"], event["records"]) == (case.group, 1, 0)
    native = World("native", case.kafka.bootstrap, "native")
    try:
        assert native.raw.describe(32, case.group)["share.delivery.count.limit"] == "7"
    finally:
        native.close()


def test_records_that_are_not_settled_in_time_keep_the_group_here(cases: Any) -> None:
    """The refusal names their offsets, and new records are delivered here again. With --force they are repeated."""
    case = cases()
    case.accept(0, 3)
    with pytest.raises(NoResponse, match=r"not settled within 0 s: .*-0 offsets 4-9"):
        case.hand_over(0)
    assert case.state_at_brokers() == GROUP_ID_NOT_FOUND
    case.world.raw.produce(case.topic, 5)
    assert case.member.take(case.topic).acquired(case.topic) == [(10, 14, 1)]
    assert "offsets 4-14" in case.hand_over(0, force=True)
    acquired = case.rejoined()
    assert (acquired[0][0], acquired[-1][1]) == (4, 14)


def test_setting_that_brokers_do_not_have_is_refused(cases: Any) -> None:
    case = cases(**{"share.redelivery.delay.ms": "1000"})
    with pytest.raises(NoResponse, match=r"the brokers do not have share\.redelivery\.delay\.ms"):
        case.hand_over(0)
    case.accept(0, 9)
    assert "no longer in force: share.redelivery.delay.ms" in case.hand_over(10, force=True)


def test_proxy_killed_while_records_are_held_back_still_serves_the_group(cases: Any) -> None:
    """A hand-over that is begun again completes."""
    case = cases()
    thread = case.begin()
    case.front.kill()
    thread.join(60)
    assert isinstance(case.outcome, NoResponse)
    case.front.start()
    case.member.disconnect()
    case.world.close()
    case.world = World("again", case.front.bootstrap, "again")
    case.member = case.world.member(case.group, "C", topics=[case.topic])
    acquired = case.member.take(case.topic).acquired(case.topic)
    assert (acquired[0][0], acquired[-1][1]) == (0, 9)
    assert case.state_at_brokers() == GROUP_ID_NOT_FOUND
    case.accept(0, 9)
    assert "is served by the brokers" in case.hand_over(10)
    case.world.raw.produce(case.topic, 1)
    assert case.rejoined() == [(10, 10, 1)]


def test_group_that_would_be_created_here_again_is_refused(running: Running, kafka_43_quick: Cluster) -> None:
    """With share_groups.serve: local; so is a group that does not exist."""
    front = running.front(kafka_43_quick.bootstrap, LOCAL)
    world = World("local", front.bootstrap, "stays")
    try:
        topic, group = world.topic(), world.group()
        world.raw.produce(topic, 1)
        member = world.member(group, topics=[topic])
        member.take(topic)
        admin = Address(HOST, front.admin_port)
        with pytest.raises(NoResponse, match=f"share_groups.serve is local for {group}"):
            groups_command.move(admin, group, "hand-over", 0, force=False)
        with pytest.raises(NoResponse, match='share group "absent" is not held here'):
            groups_command.move(admin, "absent", "hand-over", 0, force=False)
    finally:
        world.close()
        front.stop()


@pytest.fixture
def upgraded_while_it_runs(running: Running) -> Iterator[tuple[Cluster, Front, World]]:
    """A proxy that was started while brokers of 4.3.0 had no share groups."""
    kafka = running.cluster(NEW, features=["share.version=0"], properties=QUICK)
    front = running.front(
        kafka.bootstrap, AUTO | {"upstream": {"bootstrap": kafka.bootstrap, "metadata_interval_s": 1}}
    )
    world = World("proxy", front.bootstrap, "upgraded")
    yield kafka, front, world
    world.close()
    front.stop()


def finalize(kafka: Cluster, feature: str, level: int) -> None:
    """Do what kafka-features.sh upgrade does."""
    with Raw(kafka.bootstrap) as raw:
        updates = [{"feature": feature, "max_version_level": level, "upgrade_type": 1}]
        response = raw.send_request("UpdateFeatures", 1, timeout_ms=10_000, feature_updates=updates)
        assert response.error_code == 0, response


def test_brokers_upgraded_while_the_proxy_runs_get_groups_without_a_restart(
    upgraded_while_it_runs: tuple[Cluster, Front, World],
) -> None:
    """The group stays here until it is handed over. Groups without state are the brokers'."""
    kafka, front, world = upgraded_while_it_runs
    topic, group = world.topic(), world.group(lock_ms=LOCK_MS)
    world.raw.produce(topic, 10)
    member = world.member(group, "B", topics=[topic])
    assert member.take(topic).acquired(topic) == [(0, 9, 1)]
    admin = Address(HOST, front.admin_port)
    with pytest.raises(NoResponse, match=r"broker 1 has no share\.version=1"):
        groups_command.move(admin, group, "hand-over", 0, force=False)
    finalize(kafka, "share.version", 1)
    until(lambda: "proxy or brokers, by group" in front.send_request("/readyz/share-groups")[1], "the proxy to notice")
    assert member.heartbeat(silent=True).error_code == 0
    assert member.acknowledge((topic, 0, 0, 9, ACCEPT)).error == 0
    assert "is served by the brokers" in groups_command.move(admin, group, "hand-over", 30, force=False)
    world.raw.produce(topic, 5)
    assert rejoined(member, topic) == [(10, 14, 1)]
    other = world.group("other")
    world.member(other, "C", topics=[topic])
    assert [line["group"] for line in groups_command.fetch(admin, "/groups")["groups"]] == []


def test_whole_fleet_hands_a_group_over_at_any_of_its_proxies(running: Running) -> None:
    """Members at both proxies stay. While one proxy is missing, the hand-over is refused. Restarts are no problem."""
    kafka = running.cluster(NEW, features=["share.version=0"], properties=QUICK)
    fleet = Fleet(running, kafka)
    upstream = {"upstream": {"bootstrap": kafka.bootstrap, "metadata_interval_s": 1}}
    for name in ("a", "b"):
        fleet.start(name, settings=upstream)
    fleet.settled("a", "b")
    worlds = {name: fleet.world(name, "whole") for name in ("a", "b")}
    try:
        topic = worlds["a"].topic(partitions=2)
        group = far_group(fleet, worlds["a"], "a", lock_ms=LOCK_MS)
        for partition in (0, 1):
            worlds["a"].raw.produce(topic, 5, partition=partition)
        finalize(kafka, "share.version", 1)
        for front in fleet.fronts.values():
            until(lambda front=front: "by group" in front.send_request("/readyz/share-groups")[1], "it to be noticed")
        _suspended_peer_is_refused(fleet, group)
        members = {name: worlds[name].member(group, name.upper()) for name in ("a", "b")}
        for member in members.values():
            member.heartbeat(0, topics=[topic.name], silent=True)
        assert members["a"].take((topic, 0)).acquired(topic) == [(0, 4, 1)]
        assert members["b"].take((topic, 1)).acquired(topic, 1) == [(0, 4, 1)]
        for partition, name in enumerate(("a", "b")):
            assert members[name].acknowledge((topic, partition, 0, 4, ACCEPT)).error == 0
        admin = Address(HOST, fleet.fronts["a"].admin_port)
        assert "is served by the brokers" in groups_command.move(admin, group, "hand-over", 30, force=False)
        for partition in (0, 1):
            worlds["a"].raw.produce(topic, 3, partition=partition)
        for partition, name in enumerate(("a", "b")):
            _joins_again(members[name], topic, partition)
            assert members[name].take((topic, partition)).acquired(topic, partition) == [(5, 7, 1)]
        fleet.fronts["b"].stop()
        fleet.fronts["b"].start()
        assert "by group" in fleet.fronts["b"].send_request("/readyz/share-groups")[1]
    finally:
        fleet.close_worlds()
        for front in fleet.fronts.values():
            front.stop()


def _joins_again(member: Member, topic: Topic, partition: int) -> None:
    """Repeat as clients do until the brokers have the member: 14, 15 and 16, and 25 and 122, after which it rejoins."""

    def beats() -> bool:
        code = member.heartbeat(silent=True).error_code
        assert code in (0, 14, 15, 16, UNKNOWN_MEMBER_ID), code
        if code == UNKNOWN_MEMBER_ID:
            code = member.heartbeat(0, topics=[topic.name], silent=True).error_code
        return bool(code == 0)

    until(beats, "the brokers to have the member")
    until(lambda: member.heartbeat(silent=True).error_code == 0, "a heartbeat")
    member.epoch, place = 0, (topic, partition)
    until(lambda: not member.fetch(place, silent=True, epoch=0, wait_ms=0, records=0).error, "a session at the brokers")


def _suspended_peer_is_refused(fleet: Fleet, group: str) -> None:
    """The owner says which link is missing. The proxy that does not run is `a`, which does not own the group."""
    address = Address(HOST, fleet.fronts["b"].admin_port)
    child = fleet.fronts["a"].child
    assert child is not None
    child.signal(signal.SIGSTOP)
    try:

        def refused() -> bool:
            with pytest.raises(NoResponse) as refusal:
                groups_command.move(address, group, "hand-over", 0, force=False)
            return "the fleet is not whole: no link to" in str(refusal.value)

        until(refused, "the link to be lost", pause_s=0.3)
    finally:
        child.signal(signal.SIGCONT)
    until(lambda: fleet.owned("a") > 0, "the fleet to be whole")
