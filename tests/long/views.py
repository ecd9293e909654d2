"""Views for a long time: what tests/stock/test_views.py tries in short. Run by tests/long/run, not by tests/run."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.support.brokers import NEW, OLD, Running
from tests.support.programs import built, built_with_go, need
from tests.support.raw import Raw, Topic, until
from tests.support.view_group import Group, committed, produce

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

SLOTS = 4
RECORDS = int(os.environ.get("KSP_LONG_RECORDS", "100000"))
ROUNDS = 4
"""Number of times that a member dies and another joins."""
READ_S = 240.0
SETTINGS = {"commits": {"state": "memory"}, "share_groups": {"state": "memory"}, "views": {"growth_interval_s": 1}}
SESSIONS = {
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
"""A member of a KIP-848 group that died is missed as soon as one of a classic group."""
CLASSIC = [
    ("confluent-classic", "range"),
    ("confluent-classic", "cooperative-sticky"),
    ("kafka-python", ""),
    ("kafka-python", "sticky"),
    ("kafka-python", "cooperative-sticky"),
    ("aiokafka", ""),
    ("aiokafka", "sticky"),
    ("kafkajs", ""),
    ("console", ""),
    ("console", "cooperative-sticky"),
    ("franz-go", ""),
    ("franz-go", "range"),
]
KIP_848 = [("confluent-consumer", ""), ("console", "consumer"), ("franz-go", "consumer")]
KIP_848_OLD = [("console", "consumer")]
"""3.9.1 has it as early access, with ConsumerGroupHeartbeat v0 and nothing to be switched on but
`group.coordinator.rebalance.protocols`. Kafka's own consumers speak that; librdkafka 2.16 and franz-go 1.22 want v1
and read nothing there (librdkafka) or fall back to the classic protocol, without a proxy just the same."""
CASES = [(OLD, *case) for case in CLASSIC + KIP_848_OLD] + [(NEW, *case) for case in CLASSIC + KIP_848]
Fresh = Callable[[str], str]


@pytest.fixture(scope="module", params=[OLD, NEW])
def kafka(request: pytest.FixtureRequest, running: Running) -> Cluster:
    return running.cluster(request.param, properties=SESSIONS)


@pytest.fixture(scope="module")
def front(running: Running, kafka: Cluster) -> Front:
    return running.front(kafka.bootstrap, SETTINGS)


@pytest.fixture
def raw(front: Front) -> Iterator[Raw]:
    with Raw(front.bootstrap) as opened:
        yield opened


def program(client: str, release: str) -> str:
    """Return the arguments of `Group` for a client."""
    if client == "console":
        return f"console-{release}"
    if client == "franz-go":
        return str(built_with_go("franzgo"))
    if client != "kafkajs":
        return client
    need("node")
    install = [need("npm"), "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
    return str(built("kafkajs", install, "node_modules") / "member.js")


@pytest.mark.parametrize(("release", "client", "assignor"), CASES, ids=lambda value: value or "default")
def test_members_die_and_come_and_nothing_is_lost(
    kafka: Cluster, front: Front, raw: Raw, fresh: Fresh, release: str, client: str, assignor: str
) -> None:
    """T1: one partition, four slots, four members; each key stays in its slot and in order at each member."""
    if release != kafka.release:
        pytest.skip("the other release")
    topic = raw.create_topic(fresh("base"))
    view = f"__view.r{SLOTS}.{topic.name}"
    values = produce(raw, topic, 0, RECORDS // 5)
    with closing(Group(program(client, release), front.bootstrap, fresh("group"), view, assignor)) as group:
        group.join(4)
        group.wait_assigned(SLOTS, READ_S)
        for number in range(1, ROUNDS + 1):
            values += produce(raw, topic, len(values), RECORDS * (number + 1) // 5)
            group.kill()
            group.join()
        group.wait_read(values, READ_S)
        group.wait_assigned(SLOTS, READ_S)
        group.check(SLOTS)


@pytest.mark.parametrize("client", ["confluent-classic", "kafka-python", "aiokafka"])
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec(front: Front, raw: Raw, fresh: Fresh, codec: str, client: str) -> None:
    """T2: what producers compress is divided all the same."""
    topic = raw.create_topic(fresh("base"))
    view = f"__view.r{SLOTS}.{topic.name}"
    producer = Producer({"bootstrap.servers": front.bootstrap, "compression.type": codec, "linger.ms": 20})
    values = [str(number) for number in range(RECORDS // 10)]
    for number, value in enumerate(values):
        producer.produce(topic.name, value, key=f"key-{number % 97}")
        producer.poll(0)
    assert producer.flush(60) == 0
    with closing(Group(client, front.bootstrap, fresh("group"), view)) as group:
        group.join(2)
        group.wait_read(values, READ_S)
        group.check(SLOTS)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_mix_of_transactions(front: Front, raw: Raw, fresh: Fresh, isolation: str) -> None:
    """T2: commits, aborts and an open one; the slots together are what a plain consumer of the base sees."""
    topic = raw.create_topic(fresh("base"))
    view = f"__view.r{SLOTS}.{topic.name}"
    producers = [
        Producer({"bootstrap.servers": front.bootstrap, "transactional.id": f"{topic.name}-{n}"}) for n in range(3)
    ]
    for producer in producers:
        producer.init_transactions(30)
    for number in range(30):
        producer = producers[number % 3]
        producer.begin_transaction()
        for record in range(RECORDS // 1000):
            producer.produce(topic.name, f"{number}-{record}", key=f"key-{record % 7}")
        producer.flush(30)
        if number < 29:
            (producer.abort_transaction if number % 4 == 3 else producer.commit_transaction)(30)
    expected = _all(front, topic.name, range(1), isolation)
    assert _all(front, view, range(SLOTS), isolation) == expected
    assert expected
    producers[29 % 3].abort_transaction(30)


def _all(front: Front, topic: str, partitions: range, isolation: str) -> dict[int, str]:
    """Offset to value of everything up to the end."""
    from confluent_kafka import TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": front.bootstrap, "group.id": "-", "enable.auto.commit": False,
            "isolation.level": isolation, "enable.partition.eof": True, "log_level": 2,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    got: dict[int, str] = {}
    ended: set[int] = set()

    def done() -> bool:
        for message in consumer.consume(500, 0.2):
            if message.error():
                ended.add(message.partition() or 0)
            else:
                got[message.offset() or 0] = (message.value() or b"").decode()
        return len(ended) == len(partitions)

    until(done, f"the end of {topic}", READ_S)
    consumer.close()
    return got


def test_an_idle_reader_is_quiet_and_at_the_end(front: Front, raw: Raw, fresh: Fresh) -> None:
    """T3, T4: one fetch in a wait, and every slot committed up to the end, those without a record too."""
    topic = raw.create_topic(fresh("base"))
    view, group = f"__view.r{SLOTS}.{topic.name}", fresh("group")
    produce(raw, topic, 0, 500, keys=1)
    errors: list[str] = []
    consumer = Consumer(
        {
            "bootstrap.servers": front.bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 2,
            "fetch.wait.max.ms": 500, "auto.commit.interval.ms": 200, "error_cb": lambda e: errors.append(str(e)),
        }
    )  # fmt: skip
    raw.send_request("Metadata", 12, topics=[{"name": view}], allow_auto_topic_creation=True)
    consumer.subscribe([view])
    until(
        lambda: consumer.consume(100, 0.2) is None or committed(raw, group, view, range(SLOTS)) == [500] * SLOTS, "ends"
    )
    before, began = _fetches(front), time.monotonic()
    consumer.consume(1, 10)
    elapsed = time.monotonic() - began
    assert _fetches(front) - before <= elapsed / 0.5 + 2
    consumer.close()
    assert errors == []


def _fetches(front: Front) -> float:
    match = re.search(r"^\w*view_requests(?:_total)? (\S+)$", front.send_request("/metrics")[1], re.MULTILINE)
    assert match is not None
    return float(match.group(1))


@pytest.mark.parametrize("client", ["confluent-classic", "kafka-python", "aiokafka"])
def test_leaders_of_base_and_view_move(running: Running, fresh: Fresh, client: str) -> None:
    """T5: three nodes; the base's leader moves, then the view's, then the base's back; members live on."""
    kafka = running.cluster(NEW, nodes=3)
    front = running.front(kafka.bootstrap, SETTINGS)
    with Raw(front.bootstrap) as raw:
        base = raw.create_topic(fresh("base"), assignments={0: [1, 2, 3]})
        view = f"__view.r{SLOTS}.{base.name}"
        values = produce(raw, base, 0, 2000)
        with closing(Group(client, front.bootstrap, fresh("group"), view)) as group:
            group.join(2)
            group.wait_read(values, READ_S)
            for topic, replicas in ((base.name, [2, 3, 1]), (view, [3, 1, 2]), (base.name, [3, 1, 2])):
                base = _move(raw, base, topic, replicas)
                values += produce(raw, base, len(values), len(values) + 2000)
                group.wait_read(values, READ_S)
            group.check(SLOTS)


def _move(raw: Raw, base: Topic, topic: str, replicas: list[int]) -> Topic:
    """Let the first of the replicas lead every partition of a topic; the base as it is then."""
    count = len(raw.send_request("Metadata", 12, topics=[{"name": topic}]).topics[0].partitions)
    parts = [{"partition_index": index, "replicas": replicas} for index in range(count)]
    raw.send_request("AlterPartitionReassignments", 0, topics=[{"name": topic, "partitions": parts}], timeout_ms=10_000)
    elect = [{"topic": topic, "partitions": list(range(count))}]

    def moved() -> Topic | None:
        raw.send_request("ElectLeaders", 2, election_type=0, topic_partitions=elect, timeout_ms=10_000)
        topic_metadata = raw.topic(base.name)
        good = topic_metadata is not None and (
            topic != base.name or set(topic_metadata.leaders.values()) == {replicas[0]}
        )
        return topic_metadata if good else None

    moved_topic: Topic = until(moved, f"{topic} to be led by {replicas[0]}", 60)
    return moved_topic
