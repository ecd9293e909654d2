"""Reading state partitions from their start: what `durable.partition_log` makes of them.

One connection to each leader, one Fetch at a time with all its partitions that are not done. Between two batches
others get their turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import trio

from proxy.brokers.own_connection import OwnConnection, OwnSettings, connection, error_name
from proxy.durable.partition_log import Replay
from proxy.loop import faults
from proxy.sharegroups.state_records import TOPIC
from proxy.wire import records, registry
from proxy.wire.errors import ErrorCode, UpstreamLost
from proxy.wire.values import Address

FETCH, LIST_OFFSETS = 1, 2
FETCH_VERSION, LIST_OFFSETS_VERSION = 11, 6
"""Topics go by name up to here (Fetch: 12)."""
EARLIEST, LATEST = -2, -1
FETCH_BYTES, PARTITION_BYTES = 4 << 20, 512 << 10
FETCH_WAIT_MS = 500
CONSUMER = -1
"""Replica id of who is none."""


async def read(
    replays: Mapping[int, Replay], leaders: Mapping[int, int], addresses: Mapping[int, Address], settings: OwnSettings
) -> None:
    """Read on until every replay is done.

    Raises:
        UpstreamLost: a leader is not to be reached or leads no more; what was read stays read.
        RemoteProtocolError: something is stored that cannot be read here.
    """
    by_node: dict[int, dict[int, Replay]] = {}
    for partition, replay in replays.items():
        if not replay.done:
            by_node.setdefault(leaders.get(partition, -1), {})[partition] = replay
    try:
        async with trio.open_nursery() as nursery:
            for node_id, wanted in by_node.items():
                nursery.start_soon(_read_from, node_id, addresses, wanted, settings)
    except BaseExceptionGroup as group:
        raise faults.first_of(group) from None


async def ends(
    partitions: Iterable[int], leaders: Mapping[int, int], addresses: Mapping[int, Address], settings: OwnSettings
) -> dict[int, int]:
    """Where the logs end now: the offset behind the last record. Raises UpstreamLost."""
    by_node: dict[int, list[int]] = {}
    for partition in partitions:
        by_node.setdefault(leaders.get(partition, -1), []).append(partition)
    found: dict[int, int] = {}
    for node_id, wanted in by_node.items():
        async with connection(_address(node_id, addresses), settings) as opened:
            found |= await _offsets(opened, wanted, LATEST)
    return found


def _address(node_id: int, addresses: Mapping[int, Address]) -> Address:
    address = addresses.get(node_id)
    if address is None:
        raise UpstreamLost(f"no leader is known for a partition of {TOPIC}")
    return address


async def _read_from(
    node_id: int, addresses: Mapping[int, Address], wanted: dict[int, Replay], settings: OwnSettings
) -> None:
    async with connection(_address(node_id, addresses), settings) as opened:
        for partition, offset in (await _offsets(opened, wanted, EARLIEST)).items():
            wanted[partition].next_offset = max(wanted[partition].next_offset, offset)
        while left := {partition: replay for partition, replay in wanted.items() if not replay.done}:
            answer = await opened.ask(FETCH, _fetch(left), version=FETCH_VERSION)
            for entry in (entry for topic in answer.responses for entry in topic.partitions):
                _check(entry.partition_index, entry.error_code)
                await _take(left[entry.partition_index], entry.records)


async def _take(replay: Replay, data: Any) -> None:
    for batch in records.iter_batches(data or b""):
        if batch.last_offset >= replay.next_offset:
            replay.read(batch, partial(records.decode_records, data[batch.position : batch.end]))
            await trio.lowlevel.checkpoint()


def _fetch(left: Mapping[int, Replay]) -> Any:
    request = registry.message("FetchRequest")
    partitions = [
        request.FetchPartition(
            partition=partition, fetch_offset=replay.next_offset, partition_max_bytes=PARTITION_BYTES
        )
        for partition, replay in left.items()
    ]
    return request(
        replica_id=CONSUMER,
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[request.FetchTopic(topic=TOPIC, partitions=partitions)],
        forgotten_topics_data=[],
        rack_id="",
    )


async def _offsets(opened: OwnConnection, partitions: Iterable[int], timestamp: int) -> dict[int, int]:
    request = registry.message("ListOffsetsRequest")
    wanted = [request.ListOffsetsPartition(partition_index=partition, timestamp=timestamp) for partition in partitions]
    question = request(replica_id=CONSUMER, topics=[request.ListOffsetsTopic(name=TOPIC, partitions=wanted)])
    answer = await opened.ask(LIST_OFFSETS, question, version=LIST_OFFSETS_VERSION)
    found = {}
    for entry in answer.topics[0].partitions:
        _check(entry.partition_index, entry.error_code)
        found[entry.partition_index] = entry.offset
    return found


def _check(partition: int, code: int) -> None:
    if code != ErrorCode.NONE:
        raise UpstreamLost(f"partition {partition} of {TOPIC}: {error_name(code)}")
