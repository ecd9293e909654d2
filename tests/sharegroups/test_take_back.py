"""Take-back of share groups from Kafka 4.3.0 to the proxy, seen by members that stay."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kafka_share_proxy.app.commands import groups_command
from kafka_share_proxy.app.commands.groups_command import NoResponse
from kafka_share_proxy.localkafka.addresses import HOST
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.values import Address

from tests.sharegroups.test_hand_over import (
    GROUP_ID_NOT_FOUND,
    SHARE_SESSION_NOT_FOUND,
    UNKNOWN_MEMBER_ID,
    rejoined,
    take_nothing,
)
from tests.support.brokers import NEW, QUICK, Running
from tests.support.fleet import Fleet
from tests.support.raw import Topic, until
from tests.support.worlds import ACCEPT, RELEASE, RENEW, Member, World

pytestmark = [pytest.mark.broker, pytest.mark.timeout(480)]

SETTINGS = {"share_groups": {"serve_by_group": [{"groups": "only-here", "serve": "local"}], "broker": QUICK}}
LOCK_MS = "4000"


class Case:
    """A proxy that serves groups on either side, and a group of the brokers whose member holds offsets 0-9."""

    def __init__(self, front: Front, kafka: Cluster, name: str, **settings: str) -> None:
        self.front, self.kafka = front, kafka
        self.world = World("proxy", front.bootstrap, name)
        self.native = World("native", kafka.bootstrap, name)
        self.topic: Topic = self.world.topic()
        self.group = self.world.group(lock_ms=LOCK_MS, **{"heartbeat_ms": "5000", **settings})
        self.world.raw.produce(self.topic, 10)
        self.member: Member = self.world.member(self.group, "B", topics=[self.topic])
        assert self.member.take(self.topic).acquired(self.topic) == [(0, 9, 1)]
        self.outcome: Any = None

    @property
    def admin(self) -> Address:
        return Address(HOST, self.front.admin_port)

    def close(self) -> None:
        self.world.close()
        self.native.close()

    def take_back(self, wait_s: int = 60, *, force: bool = False) -> str:
        return groups_command.move(self.admin, self.group, "take-back", wait_s, force=force)

    def begin(self, wait_s: int = 60, *, force: bool = False) -> threading.Thread:
        def run() -> None:
            try:
                self.outcome = self.take_back(wait_s, force=force)
            except NoResponse as reason:
                self.outcome = reason

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        until(lambda: self.phase() != "", "the take-back to begin")
        return thread

    def phase(self) -> str:
        try:
            return str(groups_command.fetch(self.admin, f"/groups/{self.group}/take-back")["phase"])
        except NoResponse:
            return ""

    def work_until(self, phase: str, *held: tuple[int, int]) -> None:
        """Heartbeat, and renew the locks of these offsets, until the take-back is in that phase."""

        def reached() -> bool:
            assert self.member.heartbeat(silent=True).error_code == 0
            renewed = [(self.topic, 0, first, last, RENEW) for first, last in held]
            assert not renewed or self.member.acknowledge(*renewed, renew=True, silent=True).error == 0
            assert self.phase() != "refused", groups_command.fetch(self.admin, f"/groups/{self.group}/take-back")
            return self.phase() == phase

        until(reached, f"the take-back to be {phase}", pause_s=0.5)

    def code_at_brokers(self) -> int:
        on = self.native.raw.on_coordinator(self.group)
        response = self.native.raw.send_request("ShareGroupDescribe", 1, on=on, group_ids=[self.group])
        return int(response.groups[0].error_code)


@pytest.fixture(scope="module")
def front(running: Running, kafka_43_quick: Cluster) -> Front:
    return running.front(kafka_43_quick.bootstrap, SETTINGS)


@pytest.fixture
def cases(front: Front, kafka_43_quick: Cluster, request: pytest.FixtureRequest) -> Iterator[Any]:
    started_cases: list[Case] = []

    def make(**settings: str) -> Case:
        started_cases.append(Case(front, kafka_43_quick, f"back-{request.node.name[5:20]}", **settings))
        return started_cases[-1]

    yield make
    for case in started_cases:
        case.close()


def test_members_stay_and_settled_records_and_delivery_counts_are_taken_over(cases: Any) -> None:
    """Records settled out of order are not delivered again. The group and its settings are gone at the brokers."""
    case = cases(deliveries="7")
    thread = case.begin()
    assert case.member.acknowledge((case.topic, 0, 0, 1, ACCEPT), (case.topic, 0, 3, 4, ACCEPT)).error == 0
    case.work_until("closing", (2, 2), (5, 9))
    case.world.raw.produce(case.topic, 5)
    take_nothing(case.member, case.topic)
    assert case.phase() == "closing"
    assert case.member.acknowledge((case.topic, 0, 2, 2, RELEASE), (case.topic, 0, 5, 6, ACCEPT)).error == 0
    thread.join(60)
    assert "is served by the proxy" in str(case.outcome), case.outcome
    assert case.code_at_brokers() == GROUP_ID_NOT_FOUND
    assert case.native.raw.describe(32, case.group)["share.delivery.count.limit"] == "5"
    assert case.world.raw.describe(32, case.group)["share.delivery.count.limit"] == "7"
    acquired = rejoined(case.member, case.topic)
    while acquired[-1][1] < 14:
        acquired += case.member.take(case.topic).acquired(case.topic)
    assert acquired == [(2, 2, 2), (7, 9, 2), (10, 14, 1)]


def test_records_that_are_not_settled_in_time_keep_the_group_at_the_brokers(cases: Any) -> None:
    """The refusal names their offsets. With --force they are delivered here again."""
    case = cases()
    assert case.member.acknowledge((case.topic, 0, 0, 3, ACCEPT)).error == 0
    thread = case.begin(wait_s=0)
    with pytest.raises(AssertionError, match=r"not settled within 0 s: .*-0 offsets 4-9"):
        case.work_until("taken back", (4, 9))
    thread.join(60)
    assert case.code_at_brokers() == 0
    case.world.raw.produce(case.topic, 5)
    assert case.member.take(case.topic).acquired(case.topic) == [(10, 14, 1)]
    thread = case.begin(wait_s=0, force=True)
    while thread.is_alive():
        case.member.heartbeat(silent=True, follow=False)
        case.member.acknowledge((case.topic, 0, 4, 14, RENEW), renew=True, silent=True)
        thread.join(0.5)
    assert "offsets 4-14" in str(case.outcome), case.outcome
    acquired = rejoined(case.member, case.topic)
    assert (acquired[0][0], acquired[-1][1]) == (4, 14)


def test_member_that_is_not_connected_to_this_proxy_is_named(cases: Any) -> None:
    case = cases()
    direct = case.native.member(case.group, "D")
    direct.heartbeat(0, topics=[case.topic.name], silent=True)
    thread = case.begin()
    with pytest.raises(AssertionError, match=rf"not connected to this proxy: {direct.member_id}"):
        case.work_until("taken back")
    thread.join(60)
    assert case.code_at_brokers() == 0


def test_group_without_members_is_taken_back_where_it_was(cases: Any) -> None:
    """Records settled after one that was released are not delivered again."""
    case = cases()
    assert case.member.acknowledge((case.topic, 0, 0, 3, ACCEPT), (case.topic, 0, 6, 7, ACCEPT)).error == 0
    assert case.member.fetch(case.topic, epoch=-1).error == 0
    case.member.heartbeat(epoch=-1)
    assert "held back for 0.0 s" in case.take_back()
    member = case.world.member(case.group, "C", topics=[case.topic])
    acquired = member.take(case.topic).acquired(case.topic)
    while acquired[-1][1] < 9:
        acquired += member.take(case.topic).acquired(case.topic)
    assert acquired == [(4, 5, 2), (8, 9, 2)]


def test_group_that_was_taken_back_can_be_handed_over_and_taken_back_again(cases: Any) -> None:
    case = cases()
    assert case.member.acknowledge((case.topic, 0, 0, 9, ACCEPT)).error == 0
    case.member.heartbeat(epoch=-1)
    case.take_back()
    groups_command.move(case.admin, case.group, "hand-over", 30, force=False)
    assert case.code_at_brokers() == 0
    case.take_back()
    case.world.raw.produce(case.topic, 2)
    member = case.world.member(case.group, "C", topics=[case.topic])
    assert member.take(case.topic).acquired(case.topic) == [(10, 11, 1)]


def test_group_that_begins_at_latest_skips_nothing_that_was_not_delivered(cases: Any) -> None:
    """Brokers do not store a start offset before the first delivery has ended."""
    case = cases()
    topic = case.world.topic("later")
    group = case.world.group("late", start="latest", lock_ms=LOCK_MS)
    case.world.raw.produce(topic, 3)
    member = case.world.member(group, "L", topics=[topic])
    take_nothing(member, topic)
    assert member.fetch(topic, epoch=-1).error == 0
    member.heartbeat(epoch=-1)
    assert "is served by the proxy" in groups_command.move(case.admin, group, "take-back", 60, force=False)
    case.world.raw.produce(topic, 4)
    assert case.world.member(group, "M", topics=[topic]).take(topic).acquired(topic) == [(3, 6, 1)]


def test_groups_that_cannot_be_taken_back_are_refused(cases: Any) -> None:
    case = cases()
    for group, reason in (
        ("absent", "the brokers hold no share group absent"),
        ("only-here", "the brokers hold no share group only-here"),
    ):
        with pytest.raises(NoResponse, match=reason):
            groups_command.move(case.admin, group, "take-back", 0, force=False)
    here = case.world.member("only-here", "H", topics=[case.topic])
    with pytest.raises(NoResponse, match="only-here is held here already"):
        groups_command.move(case.admin, "only-here", "take-back", 0, force=False)
    here.heartbeat(epoch=-1)


@pytest.fixture
def fleet(running: Running) -> Iterator[Fleet]:
    """Proxies at a cluster of their own: those of another cluster.mode are at the other."""
    fleet = Fleet(running, running.cluster(NEW, properties=QUICK))
    for name in ("a", "b"):
        fleet.start(name, settings=SETTINGS)
    fleet.settled("a", "b")
    yield fleet
    fleet.close_worlds()
    for front in fleet.fronts.values():
        front.stop()


@pytest.mark.long  # the short one: tests/sharegroups/test_followed_everywhere.py
def test_fleet_takes_a_group_back_with_members_at_each_proxy(fleet: Fleet) -> None:
    """The command may be given to any proxy. Records that members hold at the other one are waited for."""
    worlds = {name: fleet.world(name, "fleet-back") for name in ("a", "b")}
    topic, group = worlds["a"].topic(partitions=2), worlds["a"].group(lock_ms=LOCK_MS, heartbeat_ms="5000")
    members = {name: worlds[name].member(group, name.upper()) for name in ("a", "b")}
    for member in members.values():
        member.heartbeat(0, topics=[topic.name], silent=True)
    for partition, member in enumerate(members.values()):
        worlds["a"].raw.produce(topic, 10, partition=partition)
        assert member.take((topic, partition)).acquired(topic, partition) == [(0, 9, 1)]
        assert member.acknowledge((topic, partition, 0, 3, ACCEPT), (topic, partition, 6, 6, ACCEPT)).error == 0
    held = {name: (topic, partition, 7, 9) for partition, name in enumerate(("a", "b"))}
    admin, outcome = {name: Address(HOST, fleet.fronts[name].admin_port) for name in ("a", "b")}, list[str]()

    def phase() -> str:
        for member, place in ((members[name], held[name]) for name in held):
            assert member.heartbeat(silent=True).error_code == 0
            member.acknowledge((*place, RENEW), renew=True, silent=True)
        try:
            return str(groups_command.fetch(admin["b"], f"/groups/{group}/take-back")["phase"])
        except NoResponse:
            return "not begun"

    def run() -> None:
        try:
            outcome.append(groups_command.move(admin["a"], group, "take-back", 60, force=False))
        except NoResponse as reason:
            outcome.append(str(reason))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    until(lambda: phase() == "closing", "new records to be held back", pause_s=0.5)
    for partition, name in enumerate(("a", "b")):
        worlds["a"].raw.produce(topic, 5, partition=partition)
        assert members[name].fetch((topic, partition), silent=True).acquired(topic, partition) == []
        assert members[name].acknowledge((*held[name], ACCEPT)).error == 0
    thread.join(60)
    assert "is served by the proxy" in outcome[0]
    for partition, name in enumerate(("a", "b")):
        member = members[name]
        assert member.heartbeat(silent=True, follow=False).error_code == UNKNOWN_MEMBER_ID
        assert member.fetch((topic, partition), silent=True).error == SHARE_SESSION_NOT_FOUND
        member.heartbeat(0, topics=[topic.name], silent=True)
        member.epoch = 0
        acquired = member.take((topic, partition)).acquired(topic, partition)
        while acquired[-1][1] < 14:
            acquired += member.take((topic, partition)).acquired(topic, partition)
        assert [(first, last) for first, last, _ in acquired] == [(4, 5), (10, 14)]
