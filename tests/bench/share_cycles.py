"""Measure one member's cycles of share groups: ShareFetch, with the acknowledgements of what the one before delivered.

`python -m tests.bench.share_cycles [--partitions 2 50 200] [--cycles 500] [--rounds 3]` prints the CPU of the proxy and
the duration of a cycle of about 500 records of 1 KiB for sessions with each number of partitions, in front of a broker
of 3.9.1, with the state in its topic, and the CPU as a multiple of the first.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from types import TracebackType

from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.records import records

from tests.bench.measuring import cpu_seconds
from tests.support.brokers import OLD
from tests.support.worlds import ACCEPT, Ack, Response, World

PARTITIONS = 2
RECORDS_IN_BATCH, RECORD_BYTES = 63, 1024
"""A producer with `batch.size` 64 KiB."""
LIMITS = {"records": 500, "max_bytes": 50 << 20}
"""Defaults of Kafka's share consumer."""
WAIT_MS = 10_000
"""Long enough for a proxy in valgrind to read from the broker."""
BATCHES_IN_CYCLE = 10
"""Whole batches that MaxRecords reaches into, with one to spare."""
UNCOUNTED = 20
"""Cycles before the counted ones, which read the heads of all partitions."""


class Cycles:
    """A new topic with records for a number of cycles, and one member of a new group."""

    def __init__(self, bootstrap: str, count: int, partitions: int = PARTITIONS) -> None:
        self._world = World("proxy", bootstrap, f"cycles-{time.monotonic_ns()}")
        self._topic = self._world.topic(partitions=partitions)
        value = bytes(RECORD_BYTES)
        batch = records.build_batch(0, [records.Record(value=value)] * RECORDS_IN_BATCH)
        for number in range((count + 1) * BATCHES_IN_CYCLE):
            self._world.raw.append(self._topic, batch, partition=number % partitions)
        self._member = self._world.member(self._world.group(), "one", topics=[self._topic])
        self._acks: list[Ack] = []
        self._delivered(self._member.take(self._topic, silent=True, **LIMITS))

    def __enter__(self) -> Cycles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._world.close()

    def run(self, count: int) -> None:
        """Send this many ShareFetch requests. Raises SystemExit if one returns no records."""
        for _ in range(count):
            self._delivered(self._member.fetch(acks=self._acks, silent=True, wait_ms=WAIT_MS, **LIMITS))

    def _delivered(self, response: Response) -> None:
        self._acks = [
            (self._topic, part.partition_index, entry.first_offset, entry.last_offset, ACCEPT)
            for _, part in response.parts()
            for entry in part.acquired_records
        ]
        if not self._acks:
            raise SystemExit(f"error: a ShareFetch returned no records: {response.plain}")


def measured(front: Front, partitions: int, count: int) -> tuple[float, float]:
    """Return the CPU seconds of the proxy and the duration in seconds of one cycle."""
    assert front.child is not None
    with Cycles(front.bootstrap, count + UNCOUNTED, partitions) as cycles:
        cycles.run(UNCOUNTED)
        cpu, started = cpu_seconds(front.child.pid), time.monotonic()
        cycles.run(count)
        return (cpu_seconds(front.child.pid) - cpu) / count, (time.monotonic() - started) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, nargs="+", default=[2, 50, 200])
    parser.add_argument("--cycles", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    results: dict[int, list[tuple[float, float]]] = {partitions: [] for partitions in arguments.partitions}
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster(OLD, Path(folder) / "kafka") as kafka,
        Front(kafka.bootstrap, Path(folder) / "proxy", {"share_groups": {"state": "topic"}}) as front,
    ):
        for _ in range(arguments.rounds):
            for partitions, cycles in results.items():
                cycles.append(measured(front, partitions, arguments.cycles))
    medians = {
        partitions: tuple(map(statistics.median, zip(*cycles, strict=True))) for partitions, cycles in results.items()
    }
    first = medians[arguments.partitions[0]][0]
    for partitions, (cpu, duration) in medians.items():
        print(
            f"{partitions:4} partitions: {cpu * 1e3:5.2f} ms CPU, x {cpu / first:.2f}; takes {duration * 1e3:5.2f} ms"
        )


if __name__ == "__main__":
    main()
