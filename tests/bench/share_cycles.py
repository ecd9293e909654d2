"""One member's cycles of share groups: ShareFetch, with the acknowledgements of what the one before delivered."""

from __future__ import annotations

import time
from types import TracebackType

from kafka_share_proxy.wire.records import records

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


class Cycles:
    """A new topic with records for a number of cycles, and one member of a new group."""

    def __init__(self, bootstrap: str, count: int) -> None:
        self._world = World("proxy", bootstrap, f"cycles-{time.monotonic_ns()}")
        self._topic = self._world.topic(partitions=PARTITIONS)
        value = bytes(RECORD_BYTES)
        batch = records.build_batch(0, [records.Record(value=value)] * RECORDS_IN_BATCH)
        for number in range((count + 1) * BATCHES_IN_CYCLE):
            self._world.raw.append(self._topic, batch, partition=number % PARTITIONS)
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
