"""Audit events in a topic: at least once, spread over the partitions, given up after a while."""

from __future__ import annotations

import trio
import trio.testing
from kafka_share_proxy.app.observing import audit_topic
from kafka_share_proxy.app.observing.audit_topic import AuditTopic
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.values import Address

from tests.support.small_broker import Broker, Net

BOOTSTRAP, LEADER = Address("boot", 1), Address("b1", 9092)


class Heard:
    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, event: str, /, **context: object) -> None:
        self.events.append(event)


def broker(partitions: int = 2) -> Broker:
    made = Broker()
    made.topics = {"audit": partitions} if partitions else {}
    return made


def values(made: Broker) -> list[tuple[int, list[bytes]]]:
    """(partition, values) of every batch."""
    return [(part, [record.value for record in records.decode_records(batch)]) for _, part, batch in made.produced]


async def write(made: Broker, *parts: list[bytes], heard: Heard | None = None) -> AuditTopic:
    """Offer the parts one after the other, each when the one before is written or dropped."""
    async with trio.open_nursery() as nursery:
        net = Net(nursery, {BOOTSTRAP: made, LEADER: made})
        settings = ClusterClientSettings(connect=net)
        sink = AuditTopic("audit", ClusterClient([BOOTSTRAP], settings), settings, {}, heard or Heard())
        nursery.start_soon(sink.run)
        for part in parts:
            sink.offer(part)
            with trio.fail_after(300):
                await sink.written()
        nursery.cancel_scope.cancel()
    return sink


async def test_partitions_take_turns(autojump_clock: trio.testing.MockClock) -> None:
    """One record a line, without line end."""
    made = broker()
    await write(made, [b"a\n", b"b\n"], [b"c\n"], [b"d\n"])
    assert values(made) == [(0, [b"a", b"b"]), (1, [b"c"]), (0, [b"d"])]


async def test_batches_are_bounded(autojump_clock: trio.testing.MockClock, monkeypatch) -> None:
    monkeypatch.setattr(audit_topic, "BATCH_BYTES", 5)
    made = broker()
    await write(made, [b"aa\n", b"bb\n", b"a long one\n"])
    assert [lines for _, lines in values(made)] == [[b"aa"], [b"bb"], [b"a long one"]]


async def test_trouble_is_tried_again(autojump_clock: trio.testing.MockClock) -> None:
    """A leader that moved, a connection that was cut: nothing is lost."""
    made = broker()
    made.produce_codes = [6, 7]
    sink = await write(made, [b"a\n"])
    assert ([lines for _, lines in values(made)], sink.dropped) == ([[b"a"]], 0)


async def test_it_is_given_up_after_a_while(autojump_clock: trio.testing.MockClock) -> None:
    """A topic that is not there: the events are counted, and one line names it."""
    made, heard = broker(partitions=0), Heard()
    sink = await write(made, [b"a\n", b"b\n"], heard=heard)
    assert (sink.dropped, heard.events) == (2, ["audit-not-written"])


async def test_what_waits_is_bounded(autojump_clock: trio.testing.MockClock, monkeypatch) -> None:
    monkeypatch.setattr(audit_topic, "BUFFER_BYTES", 3)
    made = broker()
    sink = await write(made, [b"aaaa\n"], [b"b\n"])
    assert (sink.dropped, [lines for _, lines in values(made)]) == (1, [[b"b"]])
