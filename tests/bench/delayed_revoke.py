"""Measure the cost of a delayed revoke for the partitions that are kept: `python -m tests.bench.delayed_revoke
[--rounds N]`.

One real broker, four partitions with records in them, our consumer as the only member of a group, and confluent-kafka
in a separate process. Two windows of 20 times 20 polls in each round, in random order. "delayed": confluent-kafka
joins, and every poll delays the two partitions that are to be revoked; "undisturbed": confluent-kafka is in another
group, and as many partitions are paused. Each begins at the first record of the other two. Records a second, and CPU
seconds of our process for a million records.

Ends with status 1 where delaying costs more than a tenth of the records a second. Two minutes.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import trio
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.consumer.partitions import Partitions
from kafka_share_proxy.wire.values import TopicPartition
from rich.console import Console
from rich.table import Table

from tests.bench.consumers import PARTITIONS, Topic, fill
from tests.bench.measuring import spread
from tests.support.brokers import NEW, Running
from tests.support.raw import Raw
from tests.support.view_group import Member

RECORDS, SIZE = 1_000_000, 100
WINDOWS, POLLS = 20, 20
MUST = 0.9
"""Records a second while delaying, of those undisturbed, at least."""
READY_S = 60.0
ELSEWHERE = "elsewhere"
"""A topic without records."""
PROTOCOLS: dict[str, dict[str, Any]] = {
    "cooperative-sticky": {"assignors": ("cooperative-sticky",)},
    "consumer": {"group_protocol": "consumer"},
}


class Window(NamedTuple):
    """Results of a number of polls."""

    rate: float
    """Thousand records a second."""
    cpu: float
    """Seconds for a million records."""


async def polled(consumer: Consumer, between: Callable[[], object]) -> Window:
    """Twenty times twenty polls, with an action before each."""
    received, began, busy = 0, time.monotonic(), time.process_time()
    for _ in range(WINDOWS * POLLS):
        between()
        records = (await consumer.poll(10)).records
        received += sum(record.value is not None for record in records)
    wall, cpu = time.monotonic() - began, time.process_time() - busy
    return Window(received / wall / 1e3, cpu / received * 1e6)


@contextmanager
def other_member(bootstrap: str, group: str, topic: str, protocol: str) -> Iterator[Member]:
    """Run confluent-kafka in a separate process."""
    client, assignor = ("confluent-consumer", "") if protocol == "consumer" else ("confluent-classic", protocol)
    member = Member(client, bootstrap, group, topic, assignor)
    try:
        yield member
    finally:
        member.kill()


async def from_the_beginning(
    consumer: Consumer, partitions: Iterable[TopicPartition], between: Callable[[], object]
) -> None:
    """Every window begins alike: with an empty buffer, and the first records there."""
    for each in partitions:
        consumer.seek(each, 0)
    with trio.fail_after(READY_S):
        between()
        while not (await consumer.poll(1, max_records=1)).records:
            between()


async def window(bootstrap: str, topic: str, group: str, protocol: str, *, is_delayed: bool) -> Window:
    """One window of a member that had all partitions."""
    options = {**PROTOCOLS[protocol], "auto_offset_reset": "earliest"}
    async with open_consumer(bootstrap, group=group, topics=[topic], **options) as consumer:
        with trio.fail_after(READY_S):
            while not (await consumer.poll(1, max_records=1)).records or len(consumer.assignment) < PARTITIONS:
                pass
        peer = (group, topic) if is_delayed else (f"{group}-other", ELSEWHERE)
        with other_member(bootstrap, *peer, protocol) as member:
            going: Partitions = frozenset()
            with trio.fail_after(READY_S):
                while not (going if is_delayed else member.assigned):
                    going = (await consumer.poll(1, max_records=1)).to_be_revoked
            if not is_delayed:
                consumer.pause(sorted(consumer.assignment)[PARTITIONS // 2 :])

            def between() -> None:
                if is_delayed:
                    assert consumer.delay_revoke(going)

            await from_the_beginning(consumer, consumer.assignment - going - consumer.paused, between)
            measured = await polled(consumer, between)
            assert consumer.to_be_revoked == going
            return measured


def measure(bootstrap: str, topic: str, protocol: str, rounds: int) -> dict[str, list[Window]]:
    """Windows of each kind; the first round does not count."""
    windows: dict[str, list[Window]] = {"undisturbed": [], "delayed": []}
    for number in range(rounds + 1):
        for kind in random.sample(list(windows), len(windows)):
            run = partial(window, bootstrap, topic, f"{protocol}-{kind}-{number}", protocol)
            measurement = trio.run(partial(run, is_delayed=kind == "delayed"))
            if number:
                windows[kind].append(measurement)
    return windows


def main() -> int:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    table = Table("protocol", "window", "thousand records/s", "CPU s/million", "of undisturbed")
    short_of = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        running = Running(Path(folder))
        try:
            bootstrap = running.cluster(NEW).bootstrap
            topic = Topic("kept", SIZE, "none", RECORDS)
            with Raw(bootstrap) as raw:
                raw.create_topic(topic.name, PARTITIONS)
                raw.create_topic(ELSEWHERE, 1)
            fill(bootstrap, topic)
            for protocol in PROTOCOLS:
                windows = measure(bootstrap, topic.name, protocol, rounds)
                rates = {kind: [each.rate for each in measured_windows] for kind, measured_windows in windows.items()}
                share = statistics.median(rates["delayed"]) / statistics.median(rates["undisturbed"])
                for kind, kind_windows in windows.items():
                    of = f"{share:.2f}" if kind == "delayed" else ""
                    table.add_row(protocol, kind, spread(rates[kind]), spread([each.cpu for each in kind_windows]), of)
                if share < MUST:
                    short_of.append(f"{protocol}: {share:.2f} of undisturbed, at least {MUST}")
        finally:
            running.close()
    Console(width=120).print(table)
    print("\n".join(short_of) or "what is kept is read on as if nothing were delayed")
    return 1 if short_of else 0


if __name__ == "__main__":
    sys.exit(main())
