"""Items 73 to 89 through confluent-kafka: what an application sees of the same steps in both worlds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

from tests.oracle.items import item
from tests.support.raw import Topic, until
from tests.support.worlds import World

LIMIT_S = 60.0
ValuesAndCounts = list[list[object]]
"""[value, delivery count]"""


@contextmanager
def sharing(w: World, group: str, *topics: Topic, mode: str = "implicit") -> Iterator[ShareConsumer]:
    settings = {"bootstrap.servers": str(w.raw.bootstrap[0]), "group.id": group, "log_level": 2}
    consumer = ShareConsumer({**settings, "share.acknowledgement.mode": mode})
    consumer.subscribe([topic.name for topic in topics])
    try:
        yield consumer
    finally:
        consumer.close()


def take(consumer: ShareConsumer, count: int, kind: AcknowledgeType | None = None) -> list[Message]:
    """Poll until this many records arrived; with a kind acknowledge each."""
    got: list[Message] = []

    def enough() -> bool:
        for message in consumer.poll(0.3):
            assert message.error() is None, message.error()
            got.append(message)
            if kind is not None:
                consumer.acknowledge(message, kind)
        return len(got) >= count

    until(enough, f"{count} records", LIMIT_S)
    return got


def values_and_counts(messages: Sequence[Message]) -> ValuesAndCounts:
    return [[(message.value() or b"").decode(), message.delivery_count()] for message in messages]


def committed(consumer: ShareConsumer) -> list[str]:
    """Return what a commit says of each partition."""
    return [str(error and error.args[0].name()) for error in consumer.commit_sync(LIMIT_S).values()]


def produce(w: World, topic: Topic, *values: str) -> None:
    w.raw.produce(topic, *[[value.encode()] for value in values])


@item(73)
def unsubscribed_and_back(w: World) -> None:
    """The same consumer continues after it unsubscribed."""
    t = w.topic()
    with sharing(w, w.group(), t) as consumer:
        produce(w, t, "one")
        assert w.note("first", values_and_counts(take(consumer, 1))) == [["one", 1]]
        assert w.note("commit", committed(consumer)) == ["None"]
        consumer.unsubscribe()
        produce(w, t, "two")
        consumer.subscribe([t.name])
        assert w.note("second", values_and_counts(take(consumer, 1))) == [["two", 1]]


@item(75)
def one_by_one(w: World) -> None:
    """Records produced one after the other come once each."""
    t = w.topic()
    got: ValuesAndCounts = []
    with sharing(w, w.group(), t) as consumer:
        for number in range(5):
            produce(w, t, f"{number}")
            got += values_and_counts(take(consumer, 1))
    assert w.note("seen", got) == [[f"{number}", 1] for number in range(5)]


@item(77)
def another_subscription(w: World) -> None:
    """Records of the old topic can be acknowledged after the subscription changed."""
    first, second = w.topic("first"), w.topic("second")
    g = w.group()
    with sharing(w, g, first, mode="explicit") as consumer:
        produce(w, first, "old")
        (message,) = take(consumer, 1)
        consumer.subscribe([second.name])
        consumer.acknowledge(message, AcknowledgeType.ACCEPT)
        assert w.note("commit", committed(consumer)) == ["None"]
        produce(w, second, "new")
        assert w.note("seen", values_and_counts(take(consumer, 1, AcknowledgeType.ACCEPT))) == [["new", 1]]
        committed(consumer)


@item(79)
def acknowledged_after_the_lock(w: World) -> None:
    """An acknowledgement after the lock has ended is a failure of its partition, and the record is delivered again."""
    t = w.topic()
    produce(w, t, "late")
    with sharing(w, w.group(lock_ms="1000"), t, mode="explicit") as consumer:
        (message,) = take(consumer, 1)
        time.sleep(1.7)
        consumer.acknowledge(message, AcknowledgeType.ACCEPT)
        outcome = committed(consumer)
        assert w.note("commit", outcome) == ["INVALID_RECORD_STATE"]
        assert w.note("seen", values_and_counts(take(consumer, 1, AcknowledgeType.ACCEPT))) == [["late", 2]]
        committed(consumer)


@item(84)
def accepted_by_every_means(w: World) -> None:
    """Accepted and sent with the next poll, or by commit_sync: nothing arrives again."""
    t = w.topic()
    g = w.group()
    with sharing(w, g, t, mode="explicit") as consumer:
        produce(w, t, "poll")
        take(consumer, 1, AcknowledgeType.ACCEPT)
        produce(w, t, "commit")
        assert w.note("second", values_and_counts(take(consumer, 1, AcknowledgeType.ACCEPT))) == [["commit", 1]]
        assert w.note("commit", committed(consumer)) == ["None"]
        assert w.note("nothing", values_and_counts(list(consumer.poll(0.5)))) == []


@item(86)
def the_last_word(w: World) -> None:
    """Accepted and then released before the commit: the last one holds."""
    t = w.topic()
    produce(w, t, "one")
    with sharing(w, w.group(), t, mode="explicit") as consumer:
        (message,) = take(consumer, 1)
        consumer.acknowledge(message, AcknowledgeType.ACCEPT)
        consumer.acknowledge(message, AcknowledgeType.RELEASE)
        assert w.note("commit", committed(consumer)) == ["None"]
        assert w.note("again", values_and_counts(take(consumer, 1, AcknowledgeType.ACCEPT))) == [["one", 2]]
        committed(consumer)


@item(87)
def released_and_closed(w: World) -> None:
    """Released and unacknowledged records of a closing consumer are delivered to another immediately."""
    t = w.topic()
    g = w.group()
    produce(w, t, "released", "silent")
    with sharing(w, g, t, mode="explicit") as first:
        messages = take(first, 2)
        first.acknowledge(messages[0], AcknowledgeType.RELEASE)
    with sharing(w, g, t, mode="explicit") as second:
        again = values_and_counts(take(second, 2, AcknowledgeType.ACCEPT))
        committed(second)
    assert w.note("again", sorted(again, key=str)) == [["released", 2], ["silent", 2]]


@item(88)
def what_a_consumer_may_not_do(w: World) -> None:
    """Explicit mode: acknowledging what is no longer held fails, and so does polling on without a word."""
    t = w.topic()
    produce(w, t, "one")
    refused: list[bool] = []
    with sharing(w, w.group(), t, mode="explicit") as consumer:
        (message,) = take(consumer, 1, AcknowledgeType.ACCEPT)
        committed(consumer)
        for act in (lambda: consumer.acknowledge(message, AcknowledgeType.ACCEPT),):
            try:
                act()
            except (KafkaException, RuntimeError):
                refused.append(True)
    assert w.note("refused", refused) == [True]


@item(89)
def accepted_without_a_word(w: World) -> None:
    """Implicit mode: a commit accepts what was polled, a second commit has nothing to say."""
    t = w.topic()
    g = w.group()
    produce(w, t, "one", "two")
    with sharing(w, g, t) as consumer:
        take(consumer, 2)
        assert w.note("commit", committed(consumer)) == ["None"]
        assert w.note("nothing", committed(consumer)) == []
    with sharing(w, g, t) as other:
        assert w.note("seen", values_and_counts(list(other.poll(1)))) == []
