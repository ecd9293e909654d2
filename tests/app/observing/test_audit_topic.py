"""Audit events in a topic: at least once, spread over the partitions, given up after a while."""

from __future__ import annotations

import time

import pytest
import trio
import trio.testing
from kafka_share_proxy.app.observing import audit_topic
from kafka_share_proxy.app.observing.audit_topic import AuditTopic
from kafka_share_proxy.conformance.target.faults import Fault
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import records

from tests.support.target_brokers import TargetBrokers


class Received:
    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, event: str, /, **context: object) -> None:
        self.events.append(event)


@pytest.fixture
def brokers(nursery: trio.Nursery) -> TargetBrokers:
    target_brokers = TargetBrokers(nursery, nodes=1, wall_ms=time.time_ns() // 1_000_000)
    target_brokers.make("audit", 2, {})
    return target_brokers


def batches(brokers: TargetBrokers, partition: int) -> list[list[bytes | None]]:
    """Return the values of each batch."""
    stored_batches = brokers.log("audit", partition).batches
    return [[record.value for record in records.decode_records(batch.data)] for batch in stored_batches]


async def write(brokers: TargetBrokers, *parts: list[bytes], received: Received | None = None) -> AuditTopic:
    """Offer the parts one after the other, each when the one before is written or dropped."""
    async with trio.open_nursery() as nursery:
        sink = AuditTopic("audit", brokers.client(), received or Received())
        nursery.start_soon(sink.run)
        for part in parts:
            sink.offer(part)
            with trio.fail_after(300):
                await sink.written()
        nursery.cancel_scope.cancel()
    return sink


async def test_partitions_alternate(brokers: TargetBrokers, autojump_clock: trio.testing.MockClock) -> None:
    """One record a line, without line end."""
    await write(brokers, [b"a\n", b"b\n"], [b"c\n"], [b"d\n"])
    assert [batches(brokers, partition) for partition in (0, 1)] == [[[b"a", b"b"], [b"d"]], [[b"c"]]]


async def test_batches_are_bounded(brokers: TargetBrokers, autojump_clock: trio.testing.MockClock, monkeypatch) -> None:
    monkeypatch.setattr(audit_topic, "BATCH_BYTES", 5)
    await write(brokers, [b"aa\n", b"bb\n", b"a long one\n"])
    assert [batches(brokers, partition) for partition in (0, 1)] == [[[b"aa"], [b"a long one"]], [[b"bb"]]]


async def test_failed_batch_is_sent_again(brokers: TargetBrokers, autojump_clock: trio.testing.MockClock) -> None:
    """A leader that moved, a connection that was cut: nothing is lost."""
    for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT):
        brokers.faults.add(Fault(api=ApiKey.PRODUCE, error=code))
    sink = await write(brokers, [b"a\n"])
    assert (batches(brokers, 0) + batches(brokers, 1), sink.dropped) == ([[b"a"]], 0)


async def test_batch_that_brokers_do_not_accept_in_time_is_dropped(
    brokers: TargetBrokers, autojump_clock: trio.testing.MockClock
) -> None:
    """A topic that is not there: the events are counted, and one line names it."""
    brokers.target.delete_topic("audit")
    received = Received()
    sink = await write(brokers, [b"a\n", b"b\n"], received=received)
    assert (sink.dropped, received.events) == (2, ["audit-not-written"])


async def test_what_waits_is_bounded(
    brokers: TargetBrokers, autojump_clock: trio.testing.MockClock, monkeypatch
) -> None:
    monkeypatch.setattr(audit_topic, "BUFFER_BYTES", 3)
    sink = await write(brokers, [b"aaaa\n"], [b"b\n"])
    assert (sink.dropped, batches(brokers, 0) + batches(brokers, 1)) == (1, [[b"b"]])
