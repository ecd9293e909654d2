"""The recipes do what they say, taken out of the page that people read."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
import trio
from kafka_share_proxy import recipes
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.cluster import cluster
from tests.client.test_real_brokers import EARLIEST, QUIET, Fresh, create, produce, read
from tests.consumer.world import FakeKafka

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
Clock = trio.testing.MockClock
OPTIONS: dict[str, Any] = {
    "group": "g",
    "topics": ["a"],
    "auto_offset_reset": "earliest",
    "assignors": ("cooperative-sticky",),
}


def recipe(name: str) -> Callable[..., Any]:
    """The function of one block."""
    assert recipes.__doc__ is not None
    blocks = re.findall(r"\n\n((?: {4}.*\n|\n)+)", recipes.__doc__)
    (code,) = [textwrap.dedent(block) for block in blocks if f"async def {name}(" in block]
    names: dict[str, Any] = {}
    exec(compile(code, f"recipe {name}", "exec"), names)
    found: Callable[..., Any] = names[name]
    return found


async def until(condition: Callable[[], bool], timeout_s: float = 120) -> None:
    with trio.fail_after(timeout_s):
        while not condition():  # noqa: ASYNC110 - of tasks that know nothing of each other
            await trio.sleep(0.05)


async def test_a_revoke_waits_for_the_pool_and_every_record_is_worked_on_once(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=4)
    partitions = [TopicPartition("a", number) for number in range(4)]
    for each in partitions:
        for _ in range(10):
            kafka.produce(each, 10)
    worked: Counter[tuple[int, int]] = Counter()

    async def run(name: str, brokers: Any) -> None:
        async def work(record: Any) -> None:
            await trio.sleep(0.1)
            worked[int(name == "b"), record.offset] += 1

        await recipe("worker_pool")(
            "kafka:9091", work, connect=brokers.net, client_id=name, max_poll_records=7, **OPTIONS
        )

    async with cluster(kafka) as brokers, trio.open_nursery() as nursery:
        nursery.start_soon(run, "a", brokers)
        await until(lambda: worked.total() > 20)
        nursery.start_soon(run, "b", brokers)
        await until(lambda: worked.total() >= 400)
        await until(lambda: all(kafka.committed.get(each) == 100 for each in partitions))
        nursery.cancel_scope.cancel()
    assert worked.total() == 400
    assert {member for member, _ in worked} == {0, 1}


async def test_what_is_done_in_any_order_does_not_come_again(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 30)
    done: list[int] = []

    async def work(record: Any) -> None:
        if record.offset == 3 and len(done) < 29:
            await trio.sleep_forever()
        await trio.sleep(1 / (record.offset + 1))
        done.append(record.offset)

    async with cluster(kafka) as brokers:
        for _ in range(2):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: recipe("any_order")("kafka:9091", work, connect=brokers.net, **OPTIONS))
                await until(lambda: len(done) >= 29)
                await trio.sleep(5)
                nursery.cancel_scope.cancel()
            assert (kafka.committed[A0], kafka.texts[A0]) in ((3, "ic/1;4-29"), (30, "ic/1;"))
    assert done == [*sorted(set(range(30)) - {3}, reverse=True), 3]
    assert kafka.committed[A0] == 30


async def test_after_a_crash_the_newest_records_come_at_once_and_the_others_are_late(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 120)
    kafka.committed[A0] = 70
    newest: list[int] = []
    late: list[int] = []

    async def work(record: Any) -> None:
        newest.append(record.offset)

    async def work_late(record: Any) -> None:
        await trio.sleep(0.1)
        late.append(record.offset)

    async with cluster(kafka) as brokers, trio.open_nursery() as nursery:
        run = recipe("newest_first")
        nursery.start_soon(
            lambda: run("kafka:9091", work, work_late, connect=brokers.net, max_poll_records=5, **OPTIONS)
        )
        await until(lambda: len(late) > 3)
        kafka.produce(A0, 5)
        await until(lambda: len(newest) == 5)
        assert len(late) < 50
        await until(lambda: kafka.committed[A0] == 125)
        nursery.cancel_scope.cancel()
    assert (newest, late) == (list(range(120, 125)), list(range(70, 120)))


@pytest.mark.broker
@pytest.mark.timeout(120)
async def test_what_is_made_of_records_and_their_offsets_become_visible_together(
    kafka_43: Cluster, fresh: Fresh
) -> None:
    (source,), (target,) = create(kafka_43, fresh("source")), create(kafka_43, fresh("target"))
    produce(kafka_43, source, range(50))
    group = fresh("group")
    settings = {"bootstrap.servers": kafka_43.bootstrap, "transactional.id": fresh("transaction"), **QUIET}
    producer = confluent_kafka.Producer(settings)

    async def work(record: Any) -> bytes:
        await trio.lowlevel.checkpoint()
        return b"<" + record.value + b">"

    run = recipe("transform")
    options = {"group": group, "topics": [source.topic], **EARLIEST}
    async with (
        trio.open_nursery() as nursery,
        open_consumer(kafka_43.bootstrap, group=group, partitions=[target], read_committed=True, **EARLIEST) as reader,
    ):
        nursery.start_soon(lambda: run(kafka_43.bootstrap, producer, target.topic, work, **options))
        got = await read(reader, 50)
        assert [record.value for record in got] == [b"<%d>" % n for n in range(50)]
        assert await reader.committed([source]) == {source: OffsetAndMetadata(50)}
        nursery.cancel_scope.cancel()
