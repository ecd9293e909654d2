"""Clients at work whose every state an operator should see: locks, delayed and blocked records, dead letters, views,
individual commits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

import confluent_kafka
from confluent_kafka import AcknowledgeType, ShareConsumer
from kafka_share_proxy.localkafka.front import Front

from tests.support.raw import Raw, until

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
LIMIT_S = 60.0
RECORDS = 40
"""Records in each topic."""
DONE = 5
"""Records that the member of `held` has accepted."""
LONG_DELAY_MS = "600000"
SHORT_LOCK_MS = 1_000
SLOTS = 4


class WithoutBrokers(Front):
    """A proxy that waits for its cluster."""

    def _serves(self) -> bool:
        return self.send_request("/livez")[0]


class Observed(NamedTuple):
    """Names of what is at work."""

    held: str
    """Share group whose member holds all but DONE records."""
    ordered: str
    """Share group with key order: all but one record wait."""
    delayed: str
    """Share group whose member has released everything."""
    letters: str
    """Share group whose rejected records wait, because their topic may not be written."""
    view: str
    commits: str
    """Group with ranges: offset 10 committed, 12-14 and 20 finished."""


@contextmanager
def at_work(bootstrap: str, fresh: Callable[[str], str]) -> Iterator[Observed]:
    """Keep the members connected, and their records held, until the end."""
    with ExitStack() as stack:
        held, ordered, delayed, letters = (fresh(kind) for kind in ("held", "ordered", "delayed", "letters"))
        _member(stack, bootstrap, held, {}, accepted=DONE)
        _member(stack, bootstrap, ordered, {"share.ordering": "key"})
        _member(stack, bootstrap, delayed, {"share.redelivery.delay.ms": LONG_DELAY_MS}, then=RELEASE)
        _member(stack, bootstrap, letters, {"errors.deadletterqueue.topic.name": "not-allowed"}, then=REJECT)
        view = _readers(stack, bootstrap, fresh("base"))
        yield Observed(held, ordered, delayed, letters, view, _ranges(bootstrap, fresh("ranges")))


def keep_working(bootstrap: str, observed: Observed, seconds: float) -> None:
    """For a while, settle records of the base of the view, let locks expire, read the view, commit, change settings."""
    base = observed.view.partition(f".r{SLOTS}.")[2]
    settling, forgetful = f"{base}-settling", f"{base}-forgetful"
    with Raw(bootstrap) as raw, ExitStack() as stack:
        member, late = (_subscribed(stack, bootstrap, group, base) for group in (settling, forgetful))
        options = {"bootstrap.servers": bootstrap, "group.id": f"more-readers-{base}", "auto.offset.reset": "earliest"}
        reader = confluent_kafka.Consumer(options)
        stack.callback(reader.close)
        reader.subscribe([observed.view])
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            # Settings alternate, since only a change is logged.
            for lock_ms in (SHORT_LOCK_MS, SHORT_LOCK_MS + 1):
                raw.configure_group(forgetful, {"share.record.lock.duration.ms": str(lock_ms)})
                producer.produce(base, b"more")
                producer.flush(5)
                _settle(member)
                _settle(late, SHORT_LOCK_MS / 1000 + 0.5)
                reader.poll(0.1)
                _commit(raw, observed.commits)


def _settle(member: ShareConsumer, after_s: float = 0.0) -> None:
    """Accept the next records after a while, in which their locks may expire."""
    messages = [each for each in member.poll(0.3) or [] if each.error() is None]
    if messages:
        time.sleep(after_s)
    with suppress(confluent_kafka.KafkaException):
        for message in messages:
            member.acknowledge(message, ACCEPT)
        member.commit_sync()


def _subscribed(stack: ExitStack, bootstrap: str, group: str, topic: str) -> ShareConsumer:
    options = {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
    member = ShareConsumer(options)
    stack.callback(member.close)
    member.subscribe([topic])
    return member


@contextmanager
def holding(bootstrap: str, group: str) -> Iterator[None]:
    """Keep a member of a share group connected that holds all records but DONE."""
    with ExitStack() as stack:
        _member(stack, bootstrap, group, {}, accepted=DONE)
        yield


def _produce(bootstrap: str, topic: str) -> None:
    with Raw(bootstrap) as raw:
        raw.create_topic(topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, key="one key" if "ordered" in topic else f"key-{number}")
    assert producer.flush(30) == 0


def _member(
    stack: ExitStack,
    bootstrap: str,
    group: str,
    settings: dict[str, str],
    accepted: int = 0,
    then: AcknowledgeType | None = None,
) -> None:
    """Let one member of a group acquire the records of a topic of the same name."""
    _produce(bootstrap, group)
    with Raw(bootstrap) as raw:
        raw.configure_group(group, {"share.auto.offset.reset": "earliest"} | settings)
    options = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": f"client <of> {group}",
        "share.acknowledgement.mode": "explicit",
    }
    member = ShareConsumer(options)
    stack.callback(member.close)
    member.subscribe([group])
    end, messages = time.monotonic() + LIMIT_S, list[confluent_kafka.Message]()
    while len(messages) < (1 if "share.ordering" in settings else RECORDS):
        assert time.monotonic() < end, f"{len(messages)} records of {group} arrived"
        messages += [each for each in member.poll(0.1) or [] if each.error() is None]
    for message in messages[:accepted]:
        member.acknowledge(message, ACCEPT)
    if then is not None:
        for message in messages[accepted:]:
            member.acknowledge(message, then)
    member.commit_sync()


def _readers(stack: ExitStack, bootstrap: str, base: str) -> str:
    """Let two consumers read a view to its end. Return the view."""
    _produce(bootstrap, base)
    view = f"__view.r{SLOTS}.{base}"
    received: list[bytes | None] = []
    options = {"bootstrap.servers": bootstrap, "group.id": f"readers-{base}", "auto.offset.reset": "earliest"}
    consumers = [confluent_kafka.Consumer(options) for _ in range(2)]
    for consumer in consumers:
        stack.callback(consumer.close)
        consumer.subscribe([view])
    end = time.monotonic() + LIMIT_S
    while len(received) < RECORDS:
        assert time.monotonic() < end, f"{len(received)} records of {view} arrived"
        for consumer in consumers:
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                received.append(message.value())
    return view


def _ranges(bootstrap: str, group: str) -> str:
    """Commit ranges for a group without members, on a topic of the same name."""
    _produce(bootstrap, group)
    with Raw(bootstrap) as raw:
        until(lambda: _commit(raw, group), "the commit")
    return group


def _commit(raw: Raw, group: str) -> bool:
    """Commit finished ranges on the topic of the group. Return True if they are accepted."""
    partition = {"partition_index": 0, "committed_offset": 10, "committed_metadata": "ic/1;12-14,20-20"}
    response = raw.send_request(
        "OffsetCommit", 8, on=raw.on_coordinator(group), group_id=group, generation_id_or_member_epoch=-1,
        member_id="", topics=[{"name": group, "partitions": [partition]}],
    )  # fmt: skip
    return bool(response.topics[0].partitions[0].error_code == 0)
