"""Producers by hand: idempotent and transactional, with their ids, epochs and sequences."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import trio

from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cluster_under_test import (
    COORDINATOR_NOT_READY,
    CaseTopic,
    SetUpFailed,
)
from kafka_share_proxy.conformance.suite.connection import PeerConnection
from kafka_share_proxy.wire.errors import ErrorCode, error_name
from kafka_share_proxy.wire.records import records

ATTEMPTS, PAUSE_S = 100, 0.1
"""Attempts while a transaction is still being ended, and seconds between two of them."""
TIMESTAMP_MS = int(time.time() * 1000)
"""Timestamp of all records. With an older one, the broker would roll the segment of the log by time."""


@dataclass
class Producer:
    """A producer id with its epoch; with a transactional id also a transaction."""

    run: CaseRun
    producer_id: int
    epoch: int
    transactional_id: str | None = None
    coordinator: PeerConnection | None = None
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)
    added: set[tuple[str, int]] = field(default_factory=set)

    def batch(self, values: int | Sequence[bytes], sequence: int, **fields: Any) -> bytes:
        """Return a batch with the ids of the producer."""
        listed = [b"record %d" % n for n in range(values)] if isinstance(values, int) else values
        ids: dict[str, Any] = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "base_sequence": sequence}
        ids |= {"is_transactional": self.transactional_id is not None} | fields
        batch_records = [records.Record(value=value, timestamp=TIMESTAMP_MS) for value in listed]
        return records.build_batch(0, batch_records, **ids)

    async def try_append(self, topic: CaseTopic, values: int, sequence: int, partition: int = 0, **fields: Any) -> Any:
        """Send a batch with this base sequence; return the response of the partition."""
        data = self.batch(values, sequence, **fields)
        return await self.run.append(topic, data, partition, transactional_id=self.transactional_id)

    async def append(self, topic: CaseTopic, values: int, partition: int = 0) -> int:
        """Append a batch with the next sequence; return its base offset. Raises SetUpFailed."""
        place = topic.name, partition
        if self.transactional_id is not None and place not in self.added:
            check(await self.add_partition(topic, partition), "AddPartitionsToTxn")
            self.added.add(place)
        sequence = self.sequences.get(place, 0)
        response = await self.try_append(topic, values, sequence, partition)
        check(response.error_code, "Produce")
        self.sequences[place] = sequence + values
        return int(response.base_offset)

    @property
    def _ids(self) -> dict[str, Any]:
        return {"producer_id": self.producer_id, "producer_epoch": self.epoch}

    async def add_partition(self, topic: CaseTopic, partition: int = 0) -> int:
        """Add a partition to the transaction; return the error code."""
        for _ in range(ATTEMPTS):
            response = await self.run.request(
                "AddPartitionsToTxn",
                self.coordinator,
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[{"name": topic.name, "partitions": [partition]}],
            )
            code = int(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                return code
            await trio.sleep(PAUSE_S)
        return code

    async def end_code(self, *, committed: bool) -> int:
        """End the transaction; return the error code."""
        for _ in range(ATTEMPTS):
            response = await self.run.request(
                "EndTxn", self.coordinator, transactional_id=self.transactional_id, committed=committed, **self._ids
            )
            if response.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                self.added.clear()
                return int(response.error_code)
            await trio.sleep(PAUSE_S)
        return int(response.error_code)

    async def end(self, *, committed: bool) -> None:
        """End the transaction. Raises SetUpFailed."""
        check(await self.end_code(committed=committed), "EndTxn")


async def idempotent_producer(run: CaseRun) -> Producer:
    """Return a producer without a transactional id. Raises SetUpFailed."""
    response = await _init_producer_id(run, None, None, 60_000)
    return Producer(run, response.producer_id, response.producer_epoch)


async def begin_transactions(run: CaseRun, transactional_id: str | None = None, timeout_ms: int = 60_000) -> Producer:
    """Return a producer with a transactional id, which fences earlier ones. Raises SetUpFailed."""
    name = transactional_id or run.name("txn")
    coordinator = await run.coordinator(name, 1)
    response = await _init_producer_id(run, coordinator, name, timeout_ms)
    return Producer(run, response.producer_id, response.producer_epoch, name, coordinator)


async def topic_and_producer(run: CaseRun) -> tuple[CaseTopic, Producer]:
    """Return a topic, and a producer with a transactional id. Raises SetUpFailed."""
    return await run.topic(), await begin_transactions(run)


async def _init_producer_id(run: CaseRun, coordinator: PeerConnection | None, name: str | None, timeout_ms: int) -> Any:
    """Return the response, after waiting for the coordinator and an earlier transaction. Raises SetUpFailed."""
    for _ in range(ATTEMPTS):
        response = await run.request(
            "InitProducerId", coordinator, transactional_id=name, transaction_timeout_ms=timeout_ms
        )
        code = response.error_code
        if code != ErrorCode.CONCURRENT_TRANSACTIONS and code not in COORDINATOR_NOT_READY:
            break
        await trio.sleep(PAUSE_S)
    check(code, "InitProducerId")
    return response


def check(code: int, api: str) -> None:
    """Raise SetUpFailed for an error code."""
    if code:
        raise SetUpFailed(f"{api}: {error_name(code)}")
