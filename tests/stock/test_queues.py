"""Key order and redelivery delay of share groups with stock members: one proxy on 3.9.1."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer
from kafka_share_proxy.localkafka.front import Front

from tests.support.raw import Raw

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240), pytest.mark.xdist_group("quick")]

Fresh = Callable[[str], str]
LIMIT_S = 90.0
CLOSE_S = 20.0
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


class Queue:
    """A topic and a group of stock members that reads it from the start."""

    def __init__(self, front: Front, fresh: Fresh, partitions: int = 1, **settings: str) -> None:
        self.bootstrap, self.topic, self.group = front.bootstrap, fresh("topic"), fresh("group")
        with Raw(self.bootstrap) as raw:
            raw.create_topic(self.topic, partitions)
        self.configure(**settings)

    def configure(self, **settings: str) -> None:
        group_settings = {name.replace("_", "."): value for name, value in settings.items()}
        base = {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": "0"}
        with Raw(self.bootstrap) as raw:
            raw.configure_group(self.group, base | group_settings)

    def produce(self, keys: Sequence[str | None], **settings: Any) -> None:
        """Each value is the number of its record."""
        options = {"bootstrap.servers": self.bootstrap, "linger.ms": 20, "enable.idempotence": True, **settings}
        producer = confluent_kafka.Producer(options)
        for number, key in enumerate(keys):
            producer.produce(self.topic, b"%d" % number, key=key)
            producer.poll(0)
        assert producer.flush(30) == 0

    @contextmanager
    def members(self, count: int, **more: Any) -> Iterator[list[ShareConsumer]]:
        options = more | {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "share.acknowledgement.mode": "explicit",
            "log_level": 0,  # one that is left behind by `close` would write to the standard error of other tests
        }
        consumers = [ShareConsumer(options) for _ in range(count)]
        try:
            for member in consumers:
                member.subscribe([self.topic])
            yield consumers
        finally:
            close(consumers)


def close(members: Sequence[ShareConsumer]) -> None:
    """Close members. Those that librdkafka never closes are left behind.

    A share consumer of librdkafka 2.16.1 whose assignment becomes complete after `close` has sent its leave waits
    without end ("waiting for 1 toppar(s)"), with no request in progress.
    """
    closing = [threading.Thread(target=member.close, daemon=True) for member in members]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join(CLOSE_S)


class Story:
    """What members saw: the order in which the records of a key were settled, and which were held."""

    def __init__(self) -> None:
        self.held: dict[tuple[int, int], bytes | None] = {}
        self.keys: dict[bytes, tuple[int, int]] = {}
        """Key -> (partition, offset) of the record that is held."""
        self.settled: dict[bytes, list[int]] = defaultdict(list)
        self.done: set[tuple[int, int]] = set()

    def received(self, message: confluent_kafka.Message) -> None:
        place, key = (message.partition(), message.offset()), message.key()
        assert place not in self.held, f"{place} is held twice"
        assert place not in self.done, f"{place} was delivered after it was settled"
        self.held[place] = key
        if key is not None:
            assert key not in self.keys, f"{place} and {self.keys[key]} of key {key!r} are held at the same time"
            self.keys[key] = place

    def acknowledged(self, message: confluent_kafka.Message, kind: AcknowledgeType) -> None:
        place, key = (message.partition(), message.offset()), message.key()
        del self.held[place]
        if key is not None:
            del self.keys[key]
        if kind is not RELEASE:
            self.done.add(place)
            if key is not None:
                order = self.settled[key]
                assert not order or order[-1] < place[1], f"key {key!r}: {place[1]} was settled after {order[-1]}"
                order.append(place[1])


class Unordered(Story):
    """What members saw of a group without key order."""

    def received(self, message: confluent_kafka.Message) -> None:
        self.held[message.partition(), message.offset()] = None

    def acknowledged(self, message: confluent_kafka.Message, kind: AcknowledgeType) -> None:
        if kind is not RELEASE:
            self.done.add((message.partition(), message.offset()))


def work(members: Sequence[ShareConsumer], story: Story, count: int, dice: Random) -> None:
    """Let the members take turns until `count` records are settled. Some are released or rejected."""
    end = time.monotonic() + LIMIT_S
    while len(story.done) < count:
        assert time.monotonic() < end, f"{len(story.done)} of {count} records are settled"
        member = dice.choice(members)
        messages = [each for each in member.poll(0.2) or [] if each.error() is None]
        for message in messages:
            story.received(message)
        for message in messages:
            kind = dice.choices([ACCEPT, RELEASE, REJECT], [8, 1, 1])[0]
            member.acknowledge(message, kind)
            story.acknowledged(message, kind)
        member.commit_sync()


def settle_fetched(member: ShareConsumer, story: Story) -> None:
    """Accept the records that the member has fetched."""
    messages = [each for each in member.poll(1.0) or [] if each.error() is None]
    for message in messages:
        story.received(message)
        member.acknowledge(message, ACCEPT)
        story.acknowledged(message, ACCEPT)
    member.commit_sync()


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_members_settle_the_records_of_each_key_in_the_order_of_offsets(
    proxy_39_quick: Front, fresh: Fresh, codec: str
) -> None:
    queue = Queue(proxy_39_quick, fresh, **{"share.ordering": "key", "share.delivery.count.limit": "10"})
    dice = Random(7)
    keys = [None if dice.random() < 0.1 else f"k{int(dice.paretovariate(0.6)) % 200}" for _ in range(1_500)]
    queue.produce(keys, **{"compression.type": codec, "batch.num.messages": 40})
    story = Story()
    with queue.members(4) as members:
        work(members, story, len(keys), dice)


def test_other_keys_do_not_wait_for_a_hot_key(proxy_39_quick: Front, fresh: Fresh) -> None:
    queue = Queue(proxy_39_quick, fresh, **{"share.ordering": "key"})
    queue.produce(["hot"] * 3_000 + [f"cold-{number}" for number in range(50)])
    cold: set[bytes] = set()
    end = time.monotonic() + LIMIT_S
    with queue.members(1) as (member,):
        while len(cold) < 50:
            assert time.monotonic() < end, f"{len(cold)} of 50 records behind the hot key arrived"
            for message in member.poll(0.2) or []:
                if message.key() == b"hot":
                    assert message.offset() == 0, "the first record of the hot key is not settled"
                else:
                    cold.add(message.key())
                    member.acknowledge(message, ACCEPT)
            member.commit_sync()


def delivered(member: ShareConsumer, count: int = 1) -> tuple[list[confluent_kafka.Message], float]:
    """Wait for records; they, and the time at which the first arrived."""
    end, messages, first = time.monotonic() + LIMIT_S, list[confluent_kafka.Message](), 0.0
    while len(messages) < count:
        assert time.monotonic() < end, f"{len(messages)} of {count} records arrived"
        messages += [each for each in member.poll(0.05) or [] if each.error() is None]
        first = first or (time.monotonic() if messages else 0.0)
    return messages, first


def test_a_released_record_is_not_redelivered_before_its_delay_which_grows(proxy_39_quick: Front, fresh: Fresh) -> None:
    queue = Queue(
        proxy_39_quick,
        fresh,
        **{"share.redelivery.delay.ms": "1000", "share.redelivery.delay.multiplier": "2"},
    )
    queue.produce(["a"])
    with queue.members(1) as (member,):
        for least in (0.0, 0.9, 1.8):
            started_at = time.monotonic()
            (message,), at = delivered(member)
            assert at - started_at >= least - 0.1
            member.acknowledge(message, RELEASE)
            member.commit_sync()


def test_an_expired_lock_is_followed_by_the_delay(proxy_39_quick: Front, fresh: Fresh) -> None:
    queue = Queue(
        proxy_39_quick,
        fresh,
        **{"share.redelivery.delay.ms": "2000", "share.record.lock.duration.ms": "1000"},
    )
    queue.produce(["a"])
    with queue.members(1) as (hanging,):
        _, first = delivered(hanging)
        with queue.members(1) as (other,):
            (message,), second = delivered(other)
            assert message.offset() == 0
            assert second - first >= 1.0 + 1.8 - 0.2


def test_a_group_is_switched_to_key_order_while_its_members_work(proxy_39_quick: Front, fresh: Fresh) -> None:
    queue, dice = Queue(proxy_39_quick, fresh, **{"share.delivery.count.limit": "10"}), Random(9)
    queue.produce([f"k{number % 7}" for number in range(700)], **{"batch.num.messages": 30})
    before = Unordered()
    with queue.members(3) as members:
        work(members, before, 100, dice)
        queue.configure(**{"share.ordering": "key"})
        for member in members:  # what it has fetched before is not ordered
            settle_fetched(member, before)
        story = Story()
        story.done |= before.done
        work(members, story, 700, dice)
