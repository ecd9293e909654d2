"""Reader of state partitions from their start. `durable.partition_log` interprets the batches.

Each leader has one connection, with one Fetch at a time for all its partitions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import NamedTuple

import trio

from kafka_share_proxy.brokers import topic_log
from kafka_share_proxy.brokers.cluster_connection import (
    ClusterClientSettings,
    ClusterConnection,
    InFlight,
    connection,
)
from kafka_share_proxy.brokers.idle_connections import IdleConnections
from kafka_share_proxy.brokers.repeated_request import RepeatedRequest
from kafka_share_proxy.brokers.topic_log import EARLIEST, LATEST
from kafka_share_proxy.durable.partition_log import UNKNOWN_START, Replay
from kafka_share_proxy.loop import faults
from kafka_share_proxy.loop.slices import SLICE_S
from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError, UpstreamLost, error_name
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.records import Record
from kafka_share_proxy.wire.values import ZERO_UUID, Address

FETCH_BYTES, PARTITION_BYTES = 4 << 20, 512 << 10
"""Bytes of one response, and those of a partition if it has many."""
FETCH_WAIT_MS = 500


_ReadFrom = Callable[[ClusterConnection, "ReplaySource", Mapping[int, Replay]], Awaitable[None]]


class ReplaySource(NamedTuple):
    """Leaders, addresses and connection settings for reading the partitions of a topic."""

    topic: str
    leaders: Mapping[int, int]
    addresses: Mapping[int, Address]
    settings: ClusterClientSettings
    topic_id: bytes = ZERO_UUID
    """Zeros: any topic of that name."""
    idle: IdleConnections | None = None
    """None: a connection is opened for each call."""

    def by_leader(self, partitions: Iterable[int]) -> dict[int, list[int]]:
        """Group partitions by leader (-1: unknown)."""
        by_leader: dict[int, list[int]] = {}
        for partition in partitions:
            by_leader.setdefault(self.leaders.get(partition, -1), []).append(partition)
        return by_leader

    def address(self, node_id: int) -> Address:
        """Raises UpstreamLost if the broker is unknown."""
        address = self.addresses.get(node_id)
        if address is None:
            raise UpstreamLost(f"no leader is known for a partition of {self.topic}")
        return address

    def connection(self, node_id: int) -> AbstractAsyncContextManager[ClusterConnection]:
        """Use a connection to a broker. Raises UpstreamLost, AuthenticationFailed, RemoteProtocolError."""
        address = self.address(node_id)
        return connection(address, self.settings) if self.idle is None else self.idle.lend(address)


async def read(replays: Mapping[int, Replay], source: ReplaySource) -> None:
    """Read each partition up to its `Replay.until`. Raises UpstreamLost, AuthenticationFailed, RemoteProtocolError."""
    await _from_leaders(replays, source, _read_to_end)


async def read_ahead(replays: Mapping[int, Replay], source: ReplaySource) -> None:
    """Read what the logs have now. Raises as `read`."""
    await _from_leaders(replays, source, _read_available)


async def _from_leaders(replays: Mapping[int, Replay], source: ReplaySource, read_from: _ReadFrom) -> None:
    remaining = {partition: replay for partition, replay in replays.items() if not replay.done}
    try:
        async with trio.open_nursery() as nursery:
            for node_id, partitions in source.by_leader(remaining).items():
                led = {partition: remaining[partition] for partition in partitions}
                nursery.start_soon(_read_led, node_id, source, led, read_from)
    except BaseExceptionGroup as group:
        raise faults.first_of(group) from None


async def ends(partitions: Iterable[int], source: ReplaySource) -> dict[int, int]:
    """Return the end offset of each log. Raises UpstreamLost."""
    return await _bounds(partitions, source, LATEST)


async def had_owner(partitions: Collection[int], source: ReplaySource, replay_until: Callable[[int], Replay]) -> bool:
    """Return True if a proxy has owned one of the partitions, or its log cannot be read. Raises UpstreamLost."""
    bounds = await ends(partitions, source)
    replays = {p: replay_until(bounds[p] - 1) for p in partitions if bounds[p] > 0}
    try:
        await read(replays, source)
    except RemoteProtocolError:  # loading will show which partition
        return True
    return any(each.owner_epoch is not None for each in replays.values())


async def starts(partitions: Iterable[int], source: ReplaySource) -> dict[int, int]:
    """Return the first offset of each log. Raises UpstreamLost."""
    return await _bounds(partitions, source, EARLIEST)


async def _bounds(partitions: Iterable[int], source: ReplaySource, timestamp: int) -> dict[int, int]:
    bounds: dict[int, int] = {}
    for node_id, led in source.by_leader(partitions).items():
        async with source.connection(node_id) as opened:
            bounds |= await offsets(opened, source.topic, led, timestamp)
    return bounds


async def _read_led(node_id: int, source: ReplaySource, replays: dict[int, Replay], read_from: _ReadFrom) -> None:
    try:
        async with source.connection(node_id) as opened:
            await read_from(opened, source, replays)
    except UpstreamLost:
        for replay in replays.values():
            if not replay.done:
                replay.start = UNKNOWN_START  # the log may have lost its first records meanwhile
        raise


async def _read_to_end(opened: ClusterConnection, source: ReplaySource, replays: Mapping[int, Replay]) -> None:
    pace = Pace()
    while remaining := {partition: replay for partition, replay in replays.items() if not replay.done}:
        for entry in await _next_entries(opened, source, remaining, FETCH_WAIT_MS):
            await read_batches(remaining[entry.partition_index], entry.records, pace)


async def _read_available(opened: ClusterConnection, source: ReplaySource, replays: Mapping[int, Replay]) -> None:
    pace, remaining = Pace(), dict(replays)
    while remaining:
        for entry in await _next_entries(opened, source, remaining, wait_ms=0):
            replay = remaining[entry.partition_index]
            await read_batches(replay, entry.records, pace)
            if not entry.records or replay.next_offset >= entry.high_watermark:
                del remaining[entry.partition_index]


async def _next_entries(
    opened: ClusterConnection, source: ReplaySource, replays: Mapping[int, Replay], wait_ms: int
) -> list[messages.FetchResponse.PartitionData]:
    """Fetch what follows in each log. Raises UpstreamLost.

    The first response says where a log begins. Logs of compacted topics begin at 0, unless records were deleted: then
    its start is looked up, and the next response has records.
    """
    partition_bytes = max(PARTITION_BYTES, FETCH_BYTES // len(replays))
    entries = await fetch(opened, source, positions(replays), wait_ms, partition_bytes=partition_bytes)
    unknown = {partition for partition, replay in replays.items() if replay.start == UNKNOWN_START}
    cut = [each.partition_index for each in entries if each.error_code == ErrorCode.OFFSET_OUT_OF_RANGE]
    if unknown_starts := sorted(unknown.intersection(cut)):
        for partition, offset in (await offsets(opened, source.topic, unknown_starts, EARLIEST)).items():
            replays[partition].start = offset
            replays[partition].next_offset = max(replays[partition].next_offset, offset)
        entries = [each for each in entries if each.partition_index not in unknown_starts]
    for each in entries:
        require_no_error(source.topic, each.partition_index, each.error_code)
        if each.partition_index in unknown:
            replays[each.partition_index].start = each.log_start_offset
    return entries


class Pace:
    """Time slices: a checkpoint per batch would cost as much as several batches."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = trio.current_time() + SLICE_S

    async def step(self) -> None:
        """Let other tasks run if the slice is used up."""
        if trio.current_time() >= self._until:
            await trio.lowlevel.checkpoint()
            self._until = trio.current_time() + SLICE_S


async def read_batches(replay: Replay, data: Buffer | None, pace: Pace) -> None:
    """Read the record batches of a response. Raises RemoteProtocolError if one of them cannot be read."""
    data, position = data or b"", 0
    while True:
        while (after := replay.read_plain(data, position)) > position:
            position = after
            await pace.step()
        batch = next(records.iter_batches(data, position), None)
        if batch is None:
            return
        if batch.last_offset >= replay.next_offset:
            unwanted = b"" if batch.is_control else replay.unwanted
            replay.read(batch, partial(_records_unless_unwanted, unwanted, data[batch.position : batch.end]))
            await pace.step()
        position = batch.end


def _records_unless_unwanted(unwanted: bytes, batch: Buffer) -> Sequence[Record]:
    """Return no records if all keys are unwanted. Raises RemoteProtocolError."""
    return () if unwanted and records.has_only_keys(batch, unwanted) else records.decode_records(batch)


def positions(replays: Mapping[int, Replay]) -> dict[int, int]:
    """Return the next offset to fetch, by partition."""
    return {partition: replay.next_offset for partition, replay in replays.items()}


async def fetch(
    opened: ClusterConnection,
    source: ReplaySource,
    positions: Mapping[int, int],
    wait_ms: int = FETCH_WAIT_MS,
    session: topic_log.LogSession | None = None,
    *,
    partition_bytes: int = PARTITION_BYTES,
    in_flight: InFlight | None = None,
) -> list[messages.FetchResponse.PartitionData]:
    """Fetch from `positions` (partition -> offset). Return entries, errors included.

    `wait_ms`: how long a broker without new records waits. `session`: the response then omits unchanged partitions.
    `in_flight`: see `topic_log.fetch`.
    """
    return await topic_log.fetch(
        opened,
        source.topic,
        positions,
        wait_ms=wait_ms,
        max_bytes=FETCH_BYTES,
        partition_bytes=partition_bytes,
        topic_id=source.topic_id,
        session=session,
        in_flight=in_flight,
    )


def repeated_fetch(
    opened: ClusterConnection,
    source: ReplaySource,
    wait_ms: int,
    session: topic_log.LogSession,
    responded: Callable[[float], float | None],
    late_s: float,
) -> RepeatedRequest | None:
    """See `topic_log.repeated_fetch`."""
    return topic_log.repeated_fetch(
        opened,
        session,
        wait_ms=wait_ms,
        max_bytes=FETCH_BYTES,
        topic_id=source.topic_id,
        responded=responded,
        late_s=late_s,
    )


async def offsets(opened: ClusterConnection, topic: str, partitions: Iterable[int], timestamp: int) -> dict[int, int]:
    """Return the EARLIEST or LATEST offsets. Raises UpstreamLost, also if the broker is not the leader."""
    bounds = {}
    for entry in await topic_log.request_offsets(opened, topic, partitions, timestamp):
        require_no_error(topic, entry.partition_index, entry.error_code)
        bounds[entry.partition_index] = entry.offset
    return bounds


def require_no_error(topic: str, partition: int, code: int) -> None:
    """Raise UpstreamLost for any error code: the leader may have changed, and is looked up again."""
    if code != ErrorCode.NONE:
        raise UpstreamLost(f"partition {partition} of {topic}: {error_name(code)}")
