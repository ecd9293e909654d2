"""Our consumer in groups with members of other clients, each of which leads while ours delays what it is to give up.

T10 and T11 of the requirements, on real brokers: aiokafka (eager), Kafka's console consumer of both releases (eager,
cooperative, and KIP-848, on 3.9.1 with ConsumerGroupHeartbeat v0) and confluent-kafka. In a KIP-848 group the broker
assigns, and there is no leader. Run by tests/long/run, not by tests/run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.consumer.groups.classic_membership import ClassicMembership
from kafka_share_proxy.consumer.partitions import Partitions
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.records import records

from tests.support.raw import Raw, Topic
from tests.support.view_group import Member, committed

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = 6
STEP_S = 90.0
"""Generous: a JVM starts slowly on a starved machine."""
DELAYED_POLLS = 20
EAGER: dict[str, Any] = {"assignors": ("range", "roundrobin", "sticky")}
COOPERATIVE: dict[str, Any] = {"assignors": ("cooperative-sticky",)}
KIP_848: dict[str, Any] = {"group_protocol": "consumer"}
CASES = [
    ("3.9.1", "aiokafka", "", EAGER),
    ("4.3.0", "aiokafka", "", EAGER),
    ("4.3.0", "aiokafka", "sticky", EAGER),
    ("3.9.1", "console-3.9.1", "range", EAGER),
    ("4.3.0", "console-4.3.0", "sticky", EAGER),
    ("3.9.1", "console-3.9.1", "cooperative-sticky", COOPERATIVE),
    ("4.3.0", "console-4.3.0", "cooperative-sticky", COOPERATIVE),
    ("3.9.1", "confluent-classic", "cooperative-sticky", COOPERATIVE),
    ("4.3.0", "confluent-classic", "cooperative-sticky", COOPERATIVE),
    ("4.3.0", "confluent-consumer", "", KIP_848),
    ("4.3.0", "console-4.3.0", "consumer", KIP_848),
    ("3.9.1", "console-3.9.1", "consumer", KIP_848),
]
Fresh = Callable[[str], str]


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Cluster:
    cluster: Cluster = request.getfixturevalue({"3.9.1": "kafka_39", "4.3.0": "kafka_43"}[request.param])
    return cluster


@pytest.fixture
def raw(kafka: Cluster) -> Iterator[Raw]:
    with Raw(kafka.bootstrap) as opened:
        yield opened


@contextmanager
def peer(client: str, kafka: Cluster, group: str, topic: Topic, assignor: str) -> Iterator[Member]:
    member = Member(client, kafka.bootstrap, group, topic.name, assignor)
    try:
        yield member
    finally:
        if member.ended is None:
            member.kill()


async def polling(consumer: Consumer, got: list[tuple[int, int]], condition: Callable[[], bool], who: Any) -> None:
    """Poll, and commit what was polled, until something is so; `who` is shown if it never is."""
    with trio.move_on_after(STEP_S):
        while not condition():
            result = await consumer.poll(0.2)
            got += [(each.partition, each.offset) for each in result.records]
            if result.records:
                await consumer.commit()
        return
    raise AssertionError(f"we have {sorted(consumer.assignment)}, {consumer.state()}; {who()}")


async def until(condition: Callable[[], bool], who: Any) -> None:
    with trio.move_on_after(STEP_S):
        while not condition():  # noqa: ASYNC110 - of another process
            await trio.sleep(0.1)
        return
    raise AssertionError(who())


def read_by(*members: Member) -> list[tuple[int, int]]:
    return [(record[0], record[1]) for member in members for record in member.records]


def everything(raw: Raw, topic: Topic) -> list[tuple[int, int]]:
    return [(number, offset) for number in range(PARTITIONS) for offset in range(raw.end_offset(topic, number))]


class Produces:
    """Numbers as values, to some of the partitions or to all."""

    def __init__(self, raw: Raw, topic: Topic) -> None:
        self._raw, self._topic = raw, topic
        self._numbers = itertools.count()

    def __call__(self, partitions: Partitions | None = None, count: int = 10) -> None:
        for number in range(PARTITIONS) if partitions is None else sorted(each.partition for each in partitions):
            batch_records = [records.Record(b"key", b"%d" % next(self._numbers)) for _ in range(count)]
            self._raw.append(self._topic, records.build_batch(0, batch_records), number)


@pytest.mark.parametrize(
    ("kafka", "client", "assignor", "options"),
    CASES,
    indirect=["kafka"],
    ids=[f"{release}-{client}-{assignor or 'default'}" for release, client, assignor, _ in CASES],
)
async def test_another_client_leads_while_ours_delays(
    kafka: Cluster, raw: Raw, fresh: Fresh, client: str, assignor: str, options: dict[str, Any]
) -> None:
    """Delayed partitions have no reader, kept ones are read on, and every record is read once."""
    topic, group = raw.create_topic(fresh("topic"), PARTITIONS), fresh("group")
    produces = Produces(raw, topic)
    produces()
    got: list[tuple[int, int]] = []
    with peer(client, kafka, group, topic, assignor) as first:
        await until(lambda: len(first.records) == 60, lambda: first)
        await until(lambda: committed(raw, group, topic.name, range(PARTITIONS)) == [10] * PARTITIONS, lambda: first)
        async with open_consumer(
            kafka.bootstrap, group=group, topics=[topic.name], auto_offset_reset="earliest", **options
        ) as consumer:
            await polling(consumer, got, lambda: len(consumer.assignment) == 3 == len(first.assigned), lambda: first)
            mine = consumer.assignment
            produces(mine)
            await polling(consumer, got, lambda: len(got) == 30, lambda: first)
            if options is not KIP_848:
                membership = consumer._core.membership
                assert isinstance(membership, ClassicMembership)
                assert membership._leader._assignor is None, "the other one leads"
            with peer(client, kafka, group, topic, assignor) as second:
                going: Partitions = frozenset()
                with trio.fail_after(STEP_S):
                    while not going:
                        going = (await consumer.poll(0.2)).to_be_revoked
                assert going == mine if options is EAGER else going < mine
                for iteration in range(DELAYED_POLLS):
                    assert consumer.delay_revoke(going), iteration
                    produces(mine, 1)
                    result = await consumer.poll(0.2)
                    got += [(each.partition, each.offset) for each in result.records]
                    assert result.to_be_revoked == going, iteration
                    theirs = {number for number, offset in read_by(first, second) if offset >= 10}
                    assert theirs.isdisjoint(each.partition for each in going), iteration
                await consumer.commit()
                assert {number for number, offset in got if offset >= 20} <= {each.partition for each in mine - going}

                def even() -> bool:
                    held = [len(consumer.assignment), len(first.assigned), len(second.assigned)]
                    return held == [2, 2, 2]

                await polling(consumer, got, even, lambda: f"{first}\n{second}")
                produces()
                expected = everything(raw, topic)
                await polling(
                    consumer, got, lambda: len(set(got + read_by(first, second))) == len(expected),
                    lambda: f"{len(got)} ours, {len(expected)} wanted, {first}\n{second}",
                )  # fmt: skip
                assert sorted(got + read_by(first, second)) == expected, "each record once"


@pytest.mark.parametrize(
    ("kafka", "client", "assignor", "options"),
    [
        ("3.9.1", "confluent-classic", "range", EAGER),
        ("4.3.0", "console-4.3.0", "range", EAGER),
        ("4.3.0", "confluent-consumer", "", KIP_848),
        ("3.9.1", "console-3.9.1", "consumer", KIP_848),
    ],
    indirect=["kafka"],
)
async def test_at_the_deadline_what_is_delayed_is_lost_and_the_group_continues(
    kafka: Cluster, raw: Raw, fresh: Fresh, client: str, assignor: str, options: dict[str, Any]
) -> None:
    """T11, with a rebalance timeout of 6 s: lost before the broker would fence us, reported once, and the member
    stays.
    """
    topic, group = raw.create_topic(fresh("topic"), PARTITIONS), fresh("group")
    produces = Produces(raw, topic)
    produces()
    got: list[tuple[int, int]] = []
    async with open_consumer(
        kafka.bootstrap, group=group, topics=[topic.name], auto_offset_reset="earliest", max_poll_interval_s=6.0,
        **options,
    ) as consumer:  # fmt: skip
        await polling(consumer, got, lambda: len(got) == 60, lambda: "nobody else")
        with peer(client, kafka, group, topic, assignor) as other:
            going: Partitions = frozenset()
            with trio.fail_after(STEP_S):
                while not going:
                    going = (await consumer.poll(0.1)).to_be_revoked
            learned, lost = trio.current_time(), frozenset[Any]()
            while not lost:
                consumer.delay_revoke(going)
                lost = (await consumer.poll(0.1)).lost
                assert trio.current_time() < learned + 7
            assert lost == going
            assert 4.5 < trio.current_time() - learned < 6.0, "before the broker would have fenced the member"
            assert not consumer.delay_revoke(going)
            assert not (await consumer.poll(0)).lost
            await polling(consumer, got, lambda: len(consumer.assignment) == 3 == len(other.assigned), lambda: other)
            produces()
            expected = everything(raw, topic)
            await polling(consumer, got, lambda: len(set(got + read_by(other))) == len(expected), lambda: other)
            assert sorted(got + read_by(other)) == expected, "all was committed before"
