"""Dead letters of a group with stock members: a proxy on 3.9.1 whose share state is in the cluster."""

from __future__ import annotations

import time
from collections.abc import Callable

import confluent_kafka
import pytest
from confluent_kafka import AcknowledgeType
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.stock.test_queues import Queue, delivered
from tests.support.brokers import OLD, QUICK, Running
from tests.support.raw import Raw

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

Fresh = Callable[[str], str]
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
LIMIT_S = 60.0
QUIET_S = 2.0
"""Seconds without another dead letter after which no more are expected."""


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    return running.cluster(OLD)


@pytest.fixture(scope="module")
def front(running: Running, kafka: Cluster) -> Front:
    letters = {"topics": ["dead-*"]}
    settings = {"share_groups": {"state": "topic", "broker": QUICK, "dead_letters": letters}}
    return running.front(kafka.bootstrap, settings)


def letters_in(bootstrap: str, topic: str, count: int) -> list[confluent_kafka.Message]:
    """Return the committed records of a topic: wait for this many, and a little longer for others."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    messages: list[confluent_kafka.Message] = []
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(2)])
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            messages.append(message)
            end = min(end, time.monotonic() + QUIET_S) if len(messages) >= count else end
    consumer.close()
    return messages


def fields(message: confluent_kafka.Message) -> dict[str, str]:
    return {name.removeprefix("__dlq.errors."): value.decode() for name, value in message.headers()}


class Letters(Queue):
    """A queue with a topic for dead letters of two partitions."""

    def __init__(self, front: Front, fresh: Fresh, **settings: str) -> None:
        self.letters = fresh("dead").replace("_", "-")
        self.letters = f"dead-{self.letters}"
        with Raw(front.bootstrap) as raw:
            raw.create_topic(self.letters, 2)
        super().__init__(front, fresh, **{"errors.deadletterqueue.topic.name": self.letters} | settings)


def test_rejected_records_become_dead_letters_with_the_headers_of_kip_1191(front: Front, fresh: Fresh) -> None:
    queue = Letters(front, fresh, **{"errors.deadletterqueue.copy.record.enable": "true"})
    queue.produce(["a", "b", "c"])
    with queue.members(1) as (member,):
        messages, _ = delivered(member, 3)
        for message in messages:
            member.acknowledge(message, REJECT if message.key() == b"b" else ACCEPT)
        member.commit_sync()
    (letter,) = letters_in(queue.bootstrap, queue.letters, 1)
    assert (letter.key(), letter.value()) == (b"b", b"1")
    assert fields(letter) == {
        "topic": queue.topic,
        "partition": "0",
        "offset": "1",
        "group": queue.group,
        "delivery.count": "1",
        "message": "Offset rejected by client.",
    }


def test_records_at_their_delivery_limit_become_dead_letters_once(front: Front, fresh: Fresh) -> None:
    queue = Letters(front, fresh, **{"share.delivery.count.limit": "2"})
    queue.produce([None] * 40)
    released = 0
    with queue.members(1) as (member,):
        end = time.monotonic() + LIMIT_S
        while released < 80:
            assert time.monotonic() < end, f"{released} of 80 deliveries were released"
            for message in member.poll(0.2) or []:
                member.acknowledge(message, RELEASE)
                released += 1
            member.commit_sync()
        letters = letters_in(queue.bootstrap, queue.letters, 40)
    assert sorted(int(fields(each)["offset"]) for each in letters) == list(range(40))
    assert {fields(each)["message"] for each in letters} == {"Offset delivery count exceeded the threshold."}
    assert {fields(each)["delivery.count"] for each in letters} == {"2"}


def test_kill_9_of_the_proxy_loses_and_doubles_no_dead_letter(kafka: Cluster, front: Front, fresh: Fresh) -> None:
    """The proxy is killed twice while members reject records. A poll may return all that are free."""
    queue = Letters(front, fresh, **{"share.delivery.count.limit": "10", "share.record.lock.duration.ms": "2000"})
    count, rejected = 300, set[int]()
    queue.produce([f"k{number}" for number in range(count)])
    end = time.monotonic() + 200
    for goal in (40, 170, count):
        with queue.members(2) as members:
            while len(rejected) < goal:
                assert time.monotonic() < end, f"{len(rejected)} of {count} records are rejected"
                for member in members:
                    batch = [each for each in member.poll(0.2) or [] if each.error() is None]
                    for message in batch[: goal - len(rejected)]:
                        member.acknowledge(message, REJECT)
                        rejected.add(message.offset())
                    member.commit_sync()
                    if len(rejected) == goal:
                        break
            if goal < count:
                front.kill()
                front.start()
    letters = letters_in(kafka.bootstrap, queue.letters, count)
    offsets = sorted(int(fields(each)["offset"]) for each in letters)
    assert offsets == sorted(set(offsets)), "some records have two dead letters"
    assert offsets == list(range(count)), "some records have no dead letter"


def test_while_the_topic_is_missing_records_wait_and_are_written_once_it_exists(front: Front, fresh: Fresh) -> None:
    topic = f"dead-late-{fresh('topic')[-12:]}"
    queue = Queue(front, fresh, **{"errors.deadletterqueue.topic.name": topic})
    queue.produce(["a", "b"])
    with queue.members(1) as (member,):
        messages, _ = delivered(member, 2)
        for message in messages:
            member.acknowledge(message, REJECT)
        member.commit_sync()
        time.sleep(1.5)
        with Raw(front.bootstrap) as raw:
            raw.create_topic(topic, 2)
        letters = letters_in(front.bootstrap, topic, 2)
    assert [int(fields(each)["offset"]) for each in letters] == [0, 1]
