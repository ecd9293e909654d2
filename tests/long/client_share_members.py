"""Our share consumer in one group with Java's, while connections are bad and members die.

Through the proxy in front of 3.9.1, which has no share groups, with brokers of 4.3.0 that have them, and through the
proxy in front of these. Our members use a network that stalls, trickles, cuts and loses responses; Java's are killed.
Every record is settled, none twice, and none is delivered again after its member saw it settled. KSP_LONG_SECONDS says
how long. Run by tests/long/run, not by tests/run.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import Message, Producer
from kafka_share_proxy.client.share_consumer import ShareConsumer
from kafka_share_proxy.client.share_opening import open_share_consumer
from kafka_share_proxy.client.share_records import ShareRecord
from kafka_share_proxy.consumer.events import BrokerRefused, ConsumerError
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.consumer.share.share_holds import AcknowledgementResult, LockLostError

from tests.client.test_real_brokers import QUIET
from tests.support.bad_network import BadNetwork
from tests.support.raw import Raw
from tests.support.settlements import Delivery, Ledger, Place, Reported
from tests.support.share_members import ShareMember

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

SECONDS = float(os.environ.get("KSP_LONG_SECONDS", "60"))
AFTER_S = 90.0
"""For what is left: locks of members that died, and of responses that were lost, must end first."""
PARTITIONS = 3
LOCK_S = 3.0
KILLED_EVERY_S = 8.0
FRONTS = {"proxy-3.9.1": "proxy_39_quick", "4.3.0": "kafka_43_quick", "proxy-4.3.0": "proxy_43_quick"}
Fresh = Callable[[str], str]


@pytest.fixture(scope="module")
def proxy_43_quick(running: Any, kafka_43_quick: Any) -> Any:
    """Share groups are the broker's."""
    return running.front(kafka_43_quick.bootstrap, {"commits": {"state": "memory"}})


@pytest.fixture(params=FRONTS)
def bootstrap(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(FRONTS[request.param]).bootstrap)


class Produces:
    """Numbers as values; remembers where each went."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **QUIET})
        self._topic = topic
        self._numbers = itertools.count()
        self.places: dict[str, Place] = {}

    def some(self, count: int = 30) -> None:
        for _ in range(count):
            value = str(next(self._numbers))
            self._producer.produce(
                self._topic, value, partition=int(value) % PARTITIONS, on_delivery=self._reported
            )  # fmt: skip
        assert self._producer.flush(30) == 0

    def _reported(self, error: Any, message: Message) -> None:
        assert error is None
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        self.places[value.decode()] = (partition, offset)

    async def until(self, end: float) -> None:
        while trio.current_time() < end:
            await trio.to_thread.run_sync(self.some)
            await trio.sleep(0.3)


class Ours:
    """A member of ours: work of a few milliseconds on each record, some of it longer than the lock."""

    def __init__(self, name: str, ledger: Ledger, dice: random.Random) -> None:
        self.name, self._ledger, self._dice = name, ledger, dice
        self._empty_at = time.monotonic_ns()
        self.renewed = self.lost = 0
        self.troubles: list[str] = []

    def reported(self, result: AcknowledgementResult) -> None:
        """The acknowledgement callback."""
        error = result.error
        word = None if error is None else error.code.name if isinstance(error, BrokerRefused) else type(error).__name__
        outcome = Reported(self.name, word, time.monotonic_ns())
        for offset, kind in result.types.items():
            self.renewed += kind is AcknowledgeType.RENEW
            if kind is AcknowledgeType.ACCEPT:
                where = self._ledger.confirmed if error is None else self._ledger.failed
                where[result.partition.partition, offset].append(outcome)

    async def run(self, consumer: ShareConsumer) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                started_ns = time.monotonic_ns()
                try:
                    records = await consumer.poll(0.5)
                except ConsumerError as error:
                    self.troubles.append(str(error))
                    continue
                self._empty_at = self._empty_at if records else started_ns
                for record in records:
                    nursery.start_soon(self._work, consumer, record)

    async def _work(self, consumer: ShareConsumer, record: ShareRecord) -> None:
        place, value = (record.partition, record.offset), (record.value or b"").decode()
        delivery = Delivery(self.name, value, self._empty_at, time.monotonic_ns())
        self._ledger.deliveries[place].append(delivery)
        try:
            async with consumer.work(record):
                await trio.sleep(1.5 * LOCK_S if self._dice.random() < 0.02 else self._dice.uniform(0, 0.05))
        except LockLostError:
            self.lost += 1


class Java:
    """Members of the stock client, one of which is killed now and then."""

    def __init__(self, bootstrap: str, group: str, topic: str, folder: Path, ledger: Ledger) -> None:
        self._arguments, self._folder, self._ledger = (bootstrap, group, topic), folder, ledger
        self._numbers = itertools.count(1)
        self._members: list[ShareMember] = []
        self.killed: set[str] = set()

    def join(self) -> None:
        self._members.append(ShareMember(f"java-{next(self._numbers)}", *self._arguments, self._folder))

    def kill_one(self) -> None:
        member = self._members.pop(0)
        member.child.kill()
        member.listen(self._ledger)
        self.killed.add(member.name)

    def unknown(self, places: Mapping[str, Place]) -> dict[str, Place]:
        """Records whose settling a killed member may have taken with it, unheard."""
        return {
            value: place
            for value, place in places.items()
            if place not in self._ledger.confirmed
            and any(each.member in self.killed for each in self._ledger.deliveries.get(place, ()))
        }

    def listen(self) -> None:
        for member in self._members:
            member.listen(self._ledger)

    async def until(self, end: float) -> None:
        while trio.current_time() < end:
            await trio.sleep(min(KILLED_EVERY_S, max(0.0, end - trio.current_time())))
            await trio.to_thread.run_sync(self.kill_one)
            await trio.to_thread.run_sync(self.join)

    def close(self) -> None:
        for member in self._members:
            member.child.kill()


@contextmanager
def java_members(*arguments: Any) -> Iterator[Java]:
    java = Java(*arguments)
    try:
        java.join()
        java.join()
        yield java
    finally:
        java.close()


async def test_members_of_ours_and_of_java_settle_every_record(bootstrap: str, fresh: Fresh, tmp_path: Path) -> None:
    topic, group = fresh("topic"), fresh("group")
    settings = {
        "share.auto.offset.reset": "earliest", "share.assignment.interval.ms": "0",
        "share.record.lock.duration.ms": str(round(LOCK_S * 1000)), "share.delivery.count.limit": "10",
    }  # fmt: skip
    with Raw(bootstrap) as raw:
        raw.create_topic(topic, PARTITIONS)
        raw.configure_group(group, settings)
    ledger, produces, dice = Ledger(), Produces(bootstrap, topic), random.Random(bootstrap)
    with BadNetwork(dice) as network, java_members(bootstrap, group, topic, tmp_path, ledger) as java:
        members = [Ours(name, ledger, dice) for name in ("trio-1", "trio-2")]
        options: dict[str, Any] = {"group": group, "topics": [topic], "acknowledgement_mode": "explicit"}

        async def belong(member: Ours, connect: Any) -> None:
            async with open_share_consumer(
                bootstrap, **options, connect=connect, on_acknowledged=member.reported, request_timeout_s=3.0
            ) as consumer:
                await member.run(consumer)

        def missing() -> list[str]:
            java.listen()
            known = produces.places.keys() - java.unknown(produces.places).keys()
            return list(ledger.never_settled({value: produces.places[value] for value in known}))

        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(belong, member, network.connect)
            end = trio.current_time() + SECONDS
            async with trio.open_nursery() as faults:
                faults.start_soon(produces.until, end)
                faults.start_soon(network.misbehave, SECONDS)
                faults.start_soon(java.until, end)
            with trio.move_on_after(AFTER_S):
                while missing():  # noqa: ASYNC110 - of other processes
                    await trio.sleep(0.5)
            await trio.sleep(2 * LOCK_S)  # records held by killed members are delivered again
            java.close()
            nursery.cancel_scope.cancel()
        java.listen()
        async with open_share_consumer(bootstrap, **options) as last:
            with trio.move_on_after(3 * LOCK_S):  # longer than any lock
                while True:
                    assert await last.poll() == [], "all is settled"
    by = {each.member for outcome in ledger.confirmed.values() for each in outcome}
    unheard = set(ledger.never_settled(java.unknown(produces.places)))
    print(f"\n{len(produces.places)} records, {ledger.never_reported(produces.places)} settled without a report;")
    print(
        f"  {len(java.killed)} of Java killed, {network.dialled} connections, faults {network.faults}; by {sorted(by)}"
    )
    print("\n".join(f"  {m.name}: {m.renewed} renewed, {m.lost} lost, {set(m.troubles)}" for m in members))
    assert [each for each in ledger.faults(produces.places) if each not in unheard] == []
    assert {"trio-1", "trio-2"} < by
    assert any(name.startswith("java") for name in by)
    assert sum(member.renewed for member in members)
