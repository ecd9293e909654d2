"""The consumer with brokers of 3.9.1 and 4.3.0: codecs, transactions, other members, broken connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest
import trio
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.consumer.events import BrokerRefused
from kafka_share_proxy.consumer.groups.states import CoordinatorState
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata, Partitions
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.values import TopicPartition

from tests.support.brokers import OLD, USERS, Running
from tests.support.conditions import until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

Fresh = Callable[[str], str]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
QUIET = {"log_level": 2}
POLLS_MAX = 5000
"""Maximum number of polls of the other member."""
EARLIEST = {"auto_offset_reset": "earliest"}


@pytest.fixture(params=["3.9.1", "4.3.0"])
def kafka(request: pytest.FixtureRequest) -> Cluster:
    cluster: Cluster = request.getfixturevalue({"3.9.1": "kafka_39", "4.3.0": "kafka_43"}[request.param])
    return cluster


def create(kafka: Cluster, topic: str, partitions: int = 1) -> list[TopicPartition]:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
    for created in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        created.result(30)
    return [TopicPartition(topic, number) for number in range(partitions)]


def produce(kafka: Cluster, partition: TopicPartition, values: range, **settings: Any) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap, **QUIET, **settings})
    for value in values:
        producer.produce(
            partition.topic,
            b"%d" % value,
            key=b"k%d" % value,
            partition=partition.partition,
            headers=[("n", b"%d" % value)],
        )
    assert producer.flush(30) == 0


async def read(consumer: Consumer, count: int, timeout_s: float = 90) -> list[Any]:
    got: list[Any] = []
    with trio.move_on_after(timeout_s):
        while len(got) < count:
            got += (await consumer.poll(1)).records
    assert len(got) == count, (len(got), consumer.state())
    return got


# Records


async def test_records_of_every_codec_come_as_they_were_sent(kafka: Cluster, fresh: Fresh) -> None:
    partitions = create(kafka, fresh("topic"), len(CODECS))
    for codec, partition in zip(CODECS, partitions, strict=True):
        produce(kafka, partition, range(2000), **{"compression.type": codec, "linger.ms": 20})
    async with open_consumer(kafka.bootstrap, partitions=partitions, **EARLIEST) as consumer:
        got = await read(consumer, 2000 * len(CODECS))
        for partition in partitions:
            mine = [record for record in got if record.partition == partition.partition]
            assert [record.value for record in mine] == [b"%d" % n for n in range(2000)]
            assert [record.offset for record in mine] == list(range(2000))
            assert mine[7].key == b"k7"
            assert list(mine[7].headers) == [("n", b"7")]
            assert mine[7].timestamp > 1_600_000_000_000
        assert consumer.state().coordinator is CoordinatorState.INITIALIZED


async def test_seek_and_offsets_by_time(kafka: Cluster, fresh: Fresh) -> None:
    (partition,) = create(kafka, fresh("topic"))
    produce(kafka, partition, range(100))
    async with open_consumer(kafka.bootstrap, partitions=[partition], **EARLIEST) as consumer:
        first = (await read(consumer, 100))[0]
        consumer.seek(partition, 90)
        assert [record.offset for record in await read(consumer, 10)] == list(range(90, 100))
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 100}
        offset_and_timestamp = (await consumer.offsets_for_times({partition: first.timestamp}))[partition]
        assert offset_and_timestamp is not None
        assert offset_and_timestamp.offset == 0
        assert (await consumer.offsets_for_times({partition: 1 << 45}))[partition] is None
        assert await consumer.position(partition) == 100


async def test_read_committed_leaves_out_what_was_aborted(kafka: Cluster, fresh: Fresh) -> None:
    (partition,) = create(kafka, fresh("topic"))
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": fresh("transaction"), **QUIET}
    )
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for _ in range(10):
            producer.produce(partition.topic, b"%d" % number, partition=0)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    async with open_consumer(kafka.bootstrap, partitions=[partition], read_committed=True, **EARLIEST) as consumer:
        got = await read(consumer, 30)
        assert [record.value for record in got] == [b"%d" % n for n in (0, 2, 4) for _ in range(10)]
        with trio.fail_after(20):
            while await consumer.position(partition) < 66:  # past the last marker
                assert not (await consumer.poll(1)).records
    async with open_consumer(kafka.bootstrap, partitions=[partition], **EARLIEST) as consumer:
        assert len(await read(consumer, 60)) == 60


async def test_a_commit_of_a_topic_that_was_deleted_is_reported(kafka: Cluster, fresh: Fresh) -> None:
    """Not repeated for ever: brokers say each time that it may be there soon."""
    (partition,) = create(kafka, fresh("topic"))
    async with open_consumer(
        kafka.bootstrap, group=fresh("group"), partitions=[partition], api_timeout_s=1.0, **EARLIEST
    ) as consumer:
        await consumer.commit({partition: 0})
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
        await trio.to_thread.run_sync(admin.delete_topics([partition.topic])[partition.topic].result, 30)

        async def commit_on() -> None:
            for _ in range(10_000):  # until the coordinator has heard of it
                await consumer.commit({partition: 1})

        with trio.fail_after(20), pytest.raises(BrokerRefused, match=r"UNKNOWN_TOPIC_OR_PARTITION \(again and again"):
            await commit_on()


# Broken connections


class Dialler:
    """Dialler that can break every connection abruptly."""

    def __init__(self) -> None:
        self.streams: list[trio.SocketStream] = []

    async def __call__(self, host: str, port: int) -> trio.abc.Stream:
        stream = await trio.open_tcp_stream(host, port)
        self.streams.append(stream)
        return stream

    def break_all(self) -> int:
        """Reset every connection (the peer gets RST): what a killed process or machine looks like."""
        broken = [stream for stream in self.streams if stream.socket.fileno() >= 0]
        for stream in broken:
            stream.socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            stream.socket.close()
        self.streams.clear()
        return len(broken)


async def test_connections_that_break_cost_no_record_and_no_commit(kafka: Cluster, fresh: Fresh) -> None:
    (partition,) = create(kafka, fresh("topic"))
    dialler = Dialler()
    got: list[int] = []
    async with open_consumer(
        kafka.bootstrap, group=fresh("group"), topics=[partition.topic], connect=dialler, **EARLIEST
    ) as consumer:
        for iteration in range(10):
            produce(kafka, partition, range(iteration * 100, iteration * 100 + 100))
            got += [int(record.value) for record in await read(consumer, 100)]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.commit)
                await trio.sleep(0.002 * iteration)
                assert dialler.break_all() >= 1
        assert got == list(range(1000))
        with trio.fail_after(20):
            assert await consumer.committed([partition]) == {partition: OffsetAndMetadata(1000)}
        assert consumer.assignment == {partition}


async def test_a_dead_bootstrap_server_is_passed_over(fresh: Fresh, kafka: Cluster) -> None:
    (partition,) = create(kafka, fresh("topic"))
    produce(kafka, partition, range(10))
    with trio.fail_after(20):
        async with open_consumer(["127.0.0.1:1", kafka.bootstrap], partitions=[partition], **EARLIEST) as consumer:
            assert len(await read(consumer, 10)) == 10


# Groups


class Peer:
    """confluent-kafka as another member, polled by a thread."""

    def __init__(self, kafka: Cluster, group: str, topic: str, protocol: str) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUIET,
        }
        if protocol == "consumer":
            settings["group.protocol"] = "consumer"
        else:
            settings["partition.assignment.strategy"] = protocol
        self.consumer = confluent_kafka.Consumer(settings)
        self.consumer.subscribe([topic])
        self.got: list[tuple[int, int]] = []

    async def run(self) -> None:
        for _ in range(POLLS_MAX):
            message = await trio.to_thread.run_sync(self.consumer.poll, 0.1)
            if message is not None and message.error() is None:
                self.got.append((message.partition(), message.offset()))
                self.consumer.commit(message, asynchronous=True)

    def assignment(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}


@contextmanager
def peer_of(kafka: Cluster, group: str, topic: str, protocol: str) -> Iterator[Peer]:
    peer = Peer(kafka, group, topic, protocol)
    try:
        yield peer
    finally:
        peer.consumer.close()


def options_for(protocol: str) -> dict[str, Any]:
    if protocol == "consumer":
        return {"group_protocol": "consumer", **EARLIEST}
    return {"assignors": (protocol,), **EARLIEST}


@pytest.mark.parametrize(
    ("kafka", "protocol"),
    [
        ("3.9.1", "cooperative-sticky"),
        ("3.9.1", "range"),
        ("4.3.0", "cooperative-sticky"),
        ("4.3.0", "range"),
        ("4.3.0", "consumer"),
    ],
    indirect=["kafka"],
)
async def test_a_delayed_revoke_keeps_partitions_from_the_other_member(
    kafka: Cluster, fresh: Fresh, protocol: str
) -> None:
    """A000-1, A000-2 and R000-6, with confluent-kafka: its first record of the revoked partition is after our last
    commit.
    """
    partitions = create(kafka, fresh("topic"), 4)
    topic, group = partitions[0].topic, fresh("group")
    for partition in partitions:
        produce(kafka, partition, range(50))
    got: list[tuple[int, int]] = []
    async with open_consumer(kafka.bootstrap, group=group, topics=[topic], **options_for(protocol)) as consumer:
        records = await read(consumer, 200)
        got += [(record.partition, record.offset) for record in records]
        await consumer.commit()
        with peer_of(kafka, group, topic, protocol) as peer:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(peer.run)
                going: Partitions = frozenset()
                with trio.fail_after(60):
                    while not going:
                        going = (await consumer.poll(1)).to_be_revoked
                for iteration in range(20):
                    assert consumer.delay_revoke(going) is True
                    for partition in partitions:
                        produce(kafka, partition, range(1))
                    result = await consumer.poll(0.2)
                    got += [(record.partition, record.offset) for record in result.records]
                    assert result.to_be_revoked == going, iteration
                    assert peer.assignment() == set(), iteration
                retained_count = len(consumer.assignment - going)
                with trio.fail_after(30):
                    while len(got) < 200 + 20 * retained_count:
                        assert consumer.delay_revoke(going)
                        got += [(record.partition, record.offset) for record in (await consumer.poll(0.2)).records]
                await consumer.commit()
                with trio.fail_after(60):
                    while not (
                        len(peer.assignment()) == 2 and len(consumer.assignment) == 2 and len(got + peer.got) == 280
                    ):
                        got += [(r.partition, r.offset) for r in (await consumer.poll(0.2)).records]
                nursery.cancel_scope.cancel()
            assert {each.partition for each in consumer.assignment}.isdisjoint(peer.assignment())
            assert sorted(got + peer.got) == sorted((each.partition, n) for each in partitions for n in range(70))
            await consumer.commit()


async def test_when_a_member_leaves_the_other_has_everything(kafka: Cluster, fresh: Fresh) -> None:
    partitions = create(kafka, fresh("topic"), 2)
    topic, group = partitions[0].topic, fresh("group")
    with peer_of(kafka, group, topic, "cooperative-sticky") as peer:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.run)
            options = {"group": group, "topics": [topic], **options_for("cooperative-sticky")}
            async with open_consumer(kafka.bootstrap, **options) as consumer:
                with trio.fail_after(60):
                    while not (len(consumer.assignment) == 1 and len(peer.assignment()) == 1):
                        await consumer.poll(0.2)
            with trio.move_on_after(10):  # far below the session timeout: the member has said that it leaves
                await until(lambda: len(peer.assignment()) == 2)
            assert len(peer.assignment()) == 2
            nursery.cancel_scope.cancel()


async def test_what_was_done_in_any_order_does_not_come_again(kafka: Cluster, fresh: Fresh) -> None:
    (partition,) = create(kafka, fresh("topic"))
    produce(kafka, partition, range(20))
    options = {"group": fresh("group"), "topics": [partition.topic], "individual_commits": True, **EARLIEST}
    async with open_consumer(kafka.bootstrap, **options) as consumer:
        for record in await read(consumer, 20):
            if record.offset % 3:
                async with consumer.work(record):
                    pass
        await consumer.commit()
        assert (await consumer.committed([partition]))[partition] == OffsetAndMetadata(
            0, "ic/1;1-2,4-5,7-8,10-11,13-14,16-17,19-19"
        )
    async with open_consumer(kafka.bootstrap, **options) as consumer:
        records = await read(consumer, 7)
        assert [record.offset for record in records] == [0, 3, 6, 9, 12, 15, 18]
        for record in records:
            consumer.done(record)
        await consumer.commit()
        assert (await consumer.committed([partition]))[partition] == OffsetAndMetadata(20, "ic/1;")


async def test_a_pattern_takes_in_every_topic_that_matches(kafka: Cluster, fresh: Fresh) -> None:
    name = fresh("topic")
    expected = [*create(kafka, f"{name}-a"), *create(kafka, f"{name}-b")]
    create(kafka, f"other-{name}")
    for partition in expected:
        produce(kafka, partition, range(5))
    async with open_consumer(kafka.bootstrap, group=fresh("group"), pattern=f"{name}-.*", **EARLIEST) as consumer:
        await read(consumer, 10)
        assert consumer.assignment == set(expected)


@pytest.mark.parametrize(("kafka", "protocol"), [("3.9.1", "range"), ("4.3.0", "consumer")], indirect=["kafka"])
async def test_offsets_of_a_transaction_are_those_of_the_member_or_refused(
    kafka: Cluster, fresh: Fresh, protocol: str
) -> None:
    """Consume, transform, produce, with confluent-kafka's producer (KIP-447)."""
    (source,) = create(kafka, fresh("source"))
    (target,) = create(kafka, fresh("target"))
    produce(kafka, source, range(10))
    group = fresh("group")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": fresh("transaction"), **QUIET}
    )
    producer.init_transactions(30)
    async with open_consumer(kafka.bootstrap, group=group, topics=[source.topic], **options_for(protocol)) as consumer:
        records = await read(consumer, 10)
        producer.begin_transaction()
        for record in records:
            producer.produce(target.topic, b"<" + record.value + b">")
        done = confluent_kafka.TopicPartition(*source, records[-1].offset + 1)
        stale = consumer.group_metadata()
        producer.send_offsets_to_transaction([done], stale, 30)
        producer.commit_transaction(30)
        assert await consumer.committed([source]) == {source: OffsetAndMetadata(10)}
    producer.begin_transaction()
    with pytest.raises(confluent_kafka.KafkaException):
        producer.send_offsets_to_transaction([done], stale, 30)
    producer.abort_transaction(30)
    async with open_consumer(kafka.bootstrap, partitions=[target], read_committed=True, **EARLIEST) as consumer:
        assert [record.value for record in await read(consumer, 10)] == [b"<%d>" % n for n in range(10)]


# Through the proxy


@pytest.mark.parametrize(("release", "protocol"), [("39", "cooperative-sticky"), ("43", "consumer")])
async def test_a_group_through_the_proxy_reads_all_records_and_dials_no_broker(
    release: str, protocol: str, request: pytest.FixtureRequest, fresh: Fresh
) -> None:
    kafka = request.getfixturevalue(f"kafka_{release}")
    front = request.getfixturevalue(f"proxy_{release}")
    partitions = create(kafka, fresh("topic"), 2)
    for partition in partitions:
        produce(kafka, partition, range(500), **{"compression.type": "lz4"})
    dialler = Dialler()
    options = {"group": fresh("group"), "topics": [partitions[0].topic], "connect": dialler, **options_for(protocol)}
    async with open_consumer(front.bootstrap, **options) as consumer:
        got = await read(consumer, 1000)
        assert sorted((r.partition, r.offset) for r in got) == [(p, n) for p in (0, 1) for n in range(500)]
        await consumer.commit()
        assert await consumer.committed(partitions) == dict.fromkeys(partitions, OffsetAndMetadata(500))
        ports = {stream.socket.getpeername()[1] for stream in dialler.streams if stream.socket.fileno() >= 0}
        assert int(kafka.bootstrap.rpartition(":")[2]) not in ports


# Rights


@pytest.fixture(scope="module")
def guarded(running: Running) -> Cluster:
    return running.cluster(OLD, sasl=USERS)


async def test_sasl_plain_is_spoken_and_a_wrong_password_is_an_error(guarded: Cluster, fresh: Fresh) -> None:
    admin = ("PLAIN", "admin", "admin-secret")
    async with open_consumer(guarded.bootstrap, group=fresh("group"), sasl=admin) as consumer:
        with trio.fail_after(30):
            assert await consumer.committed([("nothing", 0)]) == {TopicPartition("nothing", 0): None}
    async with open_consumer(guarded.bootstrap, partitions=[("t", 0)], sasl=("PLAIN", "admin", "wrong")) as consumer:
        with trio.fail_after(30), pytest.raises(Exception, match="refuses 'admin'"):
            await consumer.poll(30)
    async with open_consumer(guarded.bootstrap, partitions=[("t", 0)]) as consumer:
        await consumer.poll(2)
        assert "as brokers do that want SASL" in str(consumer.state().troubles)
