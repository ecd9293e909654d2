"""State in memory, written to its topic again because brokers have deleted records (durable/README.md rule 36)."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

from kafka_share_proxy.durable.described_state import HeldState
from kafka_share_proxy.durable.journal import TopicJournal
from kafka_share_proxy.loop.trio_waiting import until_settled

RECORDS_MAX, BYTES_MIN = 100, 64 << 10
"""Maximum number of records in an append, and size of the values in bytes from which on no record is added."""


async def write(journal: TopicJournal[Any], held: HeldState, partitions: Collection[int]) -> None:
    """Write the held state to its topic. `partitions` may shrink meanwhile.

    Raises:
        JournalRefused: something cannot be stored.
    """
    waiting: dict[int, list[tuple[Any, bytes]]] = {}
    sizes = dict.fromkeys(partitions, 0)
    for key, value in held.stored(partitions, time.time_ns() // 1_000_000):
        partition = journal.state.partition_of(key)
        if partition not in partitions:
            continue
        waiting.setdefault(partition, []).append((key, value))
        sizes[partition] += len(value)
        if len(waiting[partition]) >= RECORDS_MAX or sizes[partition] >= BYTES_MIN:
            sizes[partition] = 0
            await _append(journal, partition, waiting.pop(partition))
    for partition, records in waiting.items():
        if partition in partitions:
            await _append(journal, partition, records)


async def _append(journal: TopicJournal[Any], partition: int, records: Sequence[tuple[Any, bytes]]) -> None:
    append = journal.restore(partition, records)
    await until_settled(append)
    append.result()
