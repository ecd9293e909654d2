"""The deciding part against real brokers: every request is one that they take, and every chain the proposal's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka_share_proxy.consumer.events import (
    AssignPartitions,
    Commit,
    FetchArrived,
    LeaveGroup,
    PartitionsLost,
    RevokePartitions,
)
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.live import LiveWorld
from tests.consumer.test_core import COOPERATIVE, EAGER, JOINED, PROTOCOLS, QUIET
from tests.consumer.world import Member
from tests.support.raw import Raw, Topic

pytestmark = pytest.mark.broker
RECORDS = 50
DELAYED_POLLS = 20

RELEASES = pytest.mark.parametrize("release", ["3.9.1", "4.3.0"])


class Live:
    """A topic of two partitions with records, and members that read it."""

    def __init__(self, bootstrap: str, raw: Raw, world: LiveWorld, topic: Topic, group: str) -> None:
        self.bootstrap, self.raw, self.world, self.topic, self.group = bootstrap, raw, world, topic, group
        self.places = [TopicPartition(topic.name, number) for number in range(2)]

    def member(self, name: str, protocol: str, **options: Any) -> Member:
        consumer = self.world.member(name, group_id=self.group, **PROTOCOLS[protocol], **options)
        return consumer.subscribe(self.topic.name)

    def produce(self, place: TopicPartition, count: int = RECORDS) -> None:
        self.raw.produce(self.topic, count, partition=place.partition)

    def both(self, member: Member) -> bool:
        return member.core.positions.assigned == set(self.places) and member.chain()[-1] == "STABLE"


@pytest.fixture
def live(request: pytest.FixtureRequest, release: str, fresh: Callable[[str], str]) -> Iterator[Live]:
    kafka = request.getfixturevalue("kafka_39" if release == "3.9.1" else "kafka_43")
    with Raw(kafka.bootstrap) as raw, LiveWorld(kafka.bootstrap) as world:
        yield Live(kafka.bootstrap, raw, world, raw.create_topic(fresh("topic"), 2), fresh("group"))


def committed(live: Live, member: Member) -> None:
    """Run until a member has committed all records that it was given."""
    ends = Counter(place for place, _ in member.got)
    member.handle(Commit(1000 + len(member.got), {place: OffsetAndMetadata(count) for place, count in ends.items()}))
    live.world.until(lambda: 1000 + len(member.got) in member.results(), [member])
    assert member.results()[1000 + len(member.got)].value is None


@RELEASES
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a001_4_the_states_of_a_real_group_go_through_the_chains_of_the_proposal(
    live: Live, release: str, protocol: str
) -> None:
    """R001-5, 6 and 7."""
    a = live.member("a", protocol)
    live.world.until(lambda: live.both(a), [a])
    assert a.chain() == JOINED
    for place in live.places:
        live.produce(place)
    live.world.until(lambda: len(a.got) == 2 * RECORDS, [a])
    committed(live, a)
    b = live.member("b", protocol)
    live.world.until(lambda: len(b.core.positions.assigned) == len(a.core.positions.assigned) == 1, [a, b])
    live.world.until(lambda: a.chain()[-1] == b.chain()[-1] == "STABLE", [a, b])
    chain = a.chain()[len(JOINED) - 1 :]
    expected = EAGER if protocol == "eager" else COOPERATIVE
    assert chain[: len(expected)] == expected
    assert chain[len(expected) - 1 :] in ([["STABLE"], QUIET] if protocol != "eager" else [["STABLE"]])
    for place in live.places:
        live.produce(place)
    live.world.until(lambda: len(a.got) + len(b.got) == 4 * RECORDS, [a, b])
    assert len({*a.got, *b.got}) == 4 * RECORDS, "no record twice, none lost"
    b.handle(LeaveGroup(1))
    live.world.until(lambda: 1 in b.results(), [a])
    live.world.until(lambda: live.both(a), [a])
    assert a.of(PartitionsLost) == b.of(PartitionsLost) == []
    assert {RevokePartitions, AssignPartitions, FetchArrived} <= {type(each) for each in a.events}


class Stock:
    """confluent-kafka as the other member."""

    def __init__(self, bootstrap: str, group: str, topic: str, protocol: str) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "client.id": "stock",
            "enable.auto.commit": False,
        }  # fmt: skip
        if protocol == "consumer":
            settings["group.protocol"] = "consumer"
        else:
            settings["partition.assignment.strategy"] = "range" if protocol == "eager" else "cooperative-sticky"
        self.consumer = Consumer(settings)
        self.consumer.subscribe([topic])
        self.got: list[tuple[TopicPartition, int]] = []

    def poll(self) -> None:
        message = self.consumer.poll(0)
        if message is not None and message.error() is None:
            self.got.append((TopicPartition(message.topic(), message.partition()), message.offset()))

    def has(self) -> set[TopicPartition]:
        return {TopicPartition(each.topic, each.partition) for each in self.consumer.assignment()}


@pytest.mark.parametrize(("release", "protocol"), [
    ("3.9.1", "eager"), ("3.9.1", "cooperative"), ("4.3.0", "eager"), ("4.3.0", "cooperative"), ("4.3.0", "consumer"),
])  # fmt: skip
def test_a000_2_what_is_delayed_goes_to_a_stock_member_only_when_it_is_released(
    live: Live, release: str, protocol: str
) -> None:
    """Its first record is the one after our last commit: none twice, none lost."""
    a = live.member("a", protocol)
    live.world.until(lambda: live.both(a), [a])
    for place in live.places:
        live.produce(place)
    live.world.until(lambda: len(a.got) == 2 * RECORDS, [a])
    stock = Stock(live.bootstrap, live.group, live.topic.name, protocol)
    try:
        live.world.until(lambda: bool(a.core.ledger.next), [a, stock])
        delayed = a.core.ledger.next
        for _ in range(DELAYED_POLLS):
            assert a.core.delay_revoke(delayed, live.world.now)
            a.poll()
            live.world.run(0.1, [stock])
            assert not stock.has() & delayed
        commit_while_delaying(live, a, stock)
        live.world.until(lambda: bool(stock.has() & delayed), [a, stock])
        for place in live.places:
            live.produce(place, 5)
        live.world.until(lambda: len({*a.got, *stock.got}) == 2 * RECORDS + 10, [a, stock])
        assert not {*a.got} & {*stock.got}, "nothing twice"
        assert min(offset for _, offset in stock.got) == RECORDS
        assert a.of(PartitionsLost) == []
    finally:
        stock.consumer.close()


def commit_while_delaying(live: Live, a: Member, stock: Stock) -> None:
    """Commit while the member goes on delaying."""
    a.handle(Commit(1, {place: OffsetAndMetadata(RECORDS) for place in live.places}))
    for _ in range(200):
        if 1 in a.results():
            break
        a.core.delay_revoke(a.core.ledger.next, live.world.now)
        a.poll()
        live.world.run(0.05, [stock])
    assert a.results()[1].value is None
