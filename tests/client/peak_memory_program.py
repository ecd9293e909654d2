"""A program that reads batches which are small when compressed and large when opened, and prints its peak memory in
MiB.

Arguments: `consumer` or `share`, a file with one record batch at offset 0, how often it is in the log, and max_records
of a poll of `consumer`.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import trio
from kafka_share_proxy.wire.records.records import iter_batches
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.cluster import cluster
from tests.client.share_cluster import share_cluster
from tests.consumer.share_world import ShareKafka
from tests.consumer.world import FakeKafka

A0 = TopicPartition("a", 0)
LIMIT_S = 120


def peak_mib() -> int:
    """Return VmHWM, which counts since the program's exec; ru_maxrss may be that of the parent."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) >> 10


def fill(kafka: FakeKafka, batch: bytes, times: int) -> int:
    """Produce a batch repeatedly. Return the number of records."""
    count = next(iter_batches(batch)).last_offset + 1
    kafka.records[A0] = [struct.pack(">q", number * count) + batch[8:] for number in range(times)]
    kafka.ends[A0] = times * count
    kafka.batches_of_a_fetch = times
    return times * count


async def consumer(batch: bytes, times: int, records_max: int) -> None:
    kafka = FakeKafka(a=1)
    expected = fill(kafka, batch, times)
    consumed = 0
    async with cluster(kafka) as brokers, brokers.consumer(partitions=[A0], auto_offset_reset="earliest") as reader:
        print(peak_mib(), flush=True)
        while consumed < expected:
            for record in (await reader.poll(10, max_records=records_max)).records:
                assert record.offset == consumed
                consumed += 1


async def share(batch: bytes, times: int) -> None:
    kafka = ShareKafka(a=1)
    expected = fill(kafka, batch, times)
    consumed = 0
    async with share_cluster(kafka) as brokers, brokers.consumer() as reader:
        print(peak_mib(), flush=True)
        while consumed < expected:
            for record in await reader.poll(10):
                assert record.offset == consumed
                assert reader.acknowledge(record)
                consumed += 1
        await reader.commit()


async def main(kind: str, batch: bytes, times: str, *records_max: str) -> None:
    with trio.fail_after(LIMIT_S):
        if kind == "share":
            await share(batch, int(times))
        else:
            await consumer(batch, int(times), int(records_max[0]))
    print(peak_mib())


if __name__ == "__main__":
    trio.run(main, sys.argv[1], Path(sys.argv[2]).read_bytes(), *sys.argv[3:])
