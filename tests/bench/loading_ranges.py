"""Measure the time in which an owner loads a million stored ranges: `python -m tests.bench.loading_ranges`; about 20 s.

Record batches of ten commits to each of 100 partitions, compressed as the product writes them, spread over the 50
partitions of the topic: replayed and held, as at a takeover, without the network. CPU seconds, and what is resident
beyond the batches themselves. The exit status is 1 when something that must be reached is not.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import trio
from kafka_share_proxy.commits.held_state import HeldCommits
from kafka_share_proxy.commits.state_records import INDIVIDUAL_COMMITS, RangeKey, RangeValue, encode_key, range_value
from kafka_share_proxy.durable.partition_log import ENDLESS, Replay
from kafka_share_proxy.wire.records import compression
from kafka_share_proxy.wire.records.records import Record, build_batch, decode_records, iter_batches

RANGES, OF_A_PARTITION, OF_A_COMMIT = 1_000_000, 10_000, 1_000
MUST_S, MUST_MIB = 15.0, 300.0
PRODUCER: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}


def resident_mib() -> float:
    """The most that was resident so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def commits() -> Iterator[tuple[int, bytes]]:
    """Batches of one commit each: (partition of the topic, bytes)."""
    for number in range(RANGES // OF_A_PARTITION):
        stored = range_value(RangeValue(bytes(16), 1, 5, 1_700_000_000_000, f"consumer-{number}-{'0' * 32}"))
        keys = [RangeKey(f"group-{number}", "orders", 3, 10 * n, 10 * n + 4) for n in range(OF_A_PARTITION)]
        for at in range(0, OF_A_PARTITION, OF_A_COMMIT):
            records = [Record(encode_key(key), stored, timestamp=0) for key in keys[at : at + OF_A_COMMIT]]
            yield (
                number % INDIVIDUAL_COMMITS.partitions,
                build_batch(1 + at, records, codec=compression.ZSTD, **PRODUCER),
            )


def replayed(batches: list[tuple[int, bytes]]) -> dict[int, Replay]:
    """Return what a takeover has read when all is there."""
    first = build_batch(0, [INDIVIDUAL_COMMITS.takeover("o:1", 0, 7, 0)], **PRODUCER)
    replays: dict[int, Replay] = {}
    for partition, data in batches:
        if partition not in replays:
            replays[partition] = Replay(INDIVIDUAL_COMMITS.owner_epoch_of, ENDLESS)
            take(replays[partition], first)
        take(replays[partition], data)
    return replays


def take(replay: Replay, data: bytes) -> None:
    """Read one batch."""
    for batch in iter_batches(data):
        replay.read(batch, partial(decode_records, data[batch.position : batch.end]))


async def load(replays: dict[int, Replay]) -> HeldCommits:
    """Load the records as `hosted_state` does."""
    held = HeldCommits()
    for partition in list(replays):
        await held.load(replays.pop(partition).values.items())
    return held


def main() -> int:
    """Everything; the exit status."""
    batches = list(commits())
    before, began = resident_mib(), time.process_time()
    replays = replayed(batches)
    read_s = time.process_time() - began
    held = trio.run(load, replays)
    took_s, more_mib = time.process_time() - began, resident_mib() - before
    print(
        f"{held.figures()['ranges']:,} ranges in {took_s:.1f} s of CPU ({read_s:.1f} s to replay), +{more_mib:.0f} MiB"
    )
    print(f"must: {MUST_S:g} s, {MUST_MIB:g} MiB")
    return 0 if took_s <= MUST_S and more_mib <= MUST_MIB else 1


if __name__ == "__main__":
    sys.exit(main())
