"""Reading state partitions from their start: what `durable.partition_log` makes of them.

One connection to each leader, one Fetch at a time with all its partitions that are not done. Between two batches
others get their turn, whenever a slice of time is used up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import trio

from proxy.brokers import own_log
from proxy.brokers.own_connection import OwnConnection, OwnSettings, connection
from proxy.brokers.own_log import EARLIEST, LATEST
from proxy.durable.partition_log import Replay
from proxy.loop import faults
from proxy.loop.slices import SLICE_S
from proxy.wire import messages, records
from proxy.wire.errors import ErrorCode, UpstreamLost, error_name
from proxy.wire.primitives import Buffer
from proxy.wire.records import Record
from proxy.wire.values import ZERO_UUID, Address

FETCH_BYTES, PARTITION_BYTES = 4 << 20, 512 << 10
FETCH_WAIT_MS = 500


class ReplayPlace(NamedTuple):
    """Where the partitions of a topic are read."""

    topic: str
    leaders: Mapping[int, int]
    """Partition -> node id."""
    addresses: Mapping[int, Address]
    """Node id -> where it is dialled."""
    settings: OwnSettings
    topic_id: bytes = ZERO_UUID
    """No other topic of that name is read; zeros: whichever there is."""

    def by_leader(self, partitions: Iterable[int]) -> dict[int, list[int]]:
        """Node id (-1: none is known) -> those of these partitions that it leads."""
        found: dict[int, list[int]] = {}
        for partition in partitions:
            found.setdefault(self.leaders.get(partition, -1), []).append(partition)
        return found

    def address(self, node_id: int) -> Address:
        """Where it is dialled. Raises UpstreamLost."""
        found = self.addresses.get(node_id)
        if found is None:
            raise UpstreamLost(f"no leader is known for a partition of {self.topic}")
        return found


async def read(replays: Mapping[int, Replay], place: ReplayPlace) -> None:
    """Read on until every replay is done.

    Raises:
        UpstreamLost: a leader is not to be reached or leads no more; what was read stays read.
        RemoteProtocolError: something is stored that cannot be read here.
    """
    left = {partition: replay for partition, replay in replays.items() if not replay.done}
    try:
        async with trio.open_nursery() as nursery:
            for node_id, partitions in place.by_leader(left).items():
                nursery.start_soon(_read_from, node_id, place, {partition: left[partition] for partition in partitions})
    except BaseExceptionGroup as group:
        raise faults.first_of(group) from None


async def ends(partitions: Iterable[int], place: ReplayPlace) -> dict[int, int]:
    """Where the logs end now: the offset behind the last record. Raises UpstreamLost."""
    found: dict[int, int] = {}
    for node_id, wanted in place.by_leader(partitions).items():
        async with connection(place.address(node_id), place.settings) as opened:
            found |= await offsets(opened, place.topic, wanted, LATEST)
    return found


async def _read_from(node_id: int, place: ReplayPlace, wanted: dict[int, Replay]) -> None:
    async with connection(place.address(node_id), place.settings) as opened:
        for partition, offset in (await offsets(opened, place.topic, wanted, EARLIEST)).items():
            wanted[partition].next_offset = max(wanted[partition].next_offset, offset)
        pace = Pace()
        while left := {partition: replay for partition, replay in wanted.items() if not replay.done}:
            for entry in await fetch(opened, place, left):
                check(place.topic, entry.partition_index, entry.error_code)
                await take(left[entry.partition_index], entry.records, pace)


class Pace:
    """Lets others run whenever a slice of time is used up: a turn of a Trio task costs as much as several batches."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = trio.current_time() + SLICE_S

    async def step(self) -> None:
        """Between two batches."""
        if trio.current_time() >= self._until:
            await trio.lowlevel.checkpoint()
            self._until = trio.current_time() + SLICE_S


async def take(replay: Replay, data: Buffer | None, pace: Pace) -> None:
    """Read the batches that a Fetch answered. Raises RemoteProtocolError."""
    data = data or b""
    for batch in records.iter_batches(data):
        if batch.last_offset >= replay.next_offset:
            replay.read(batch, partial(_wanted, replay.unwanted, data[batch.position : batch.end]))
            await pace.step()


def _wanted(unwanted: bytes, batch: Buffer) -> Sequence[Record]:
    """The records of a batch; none, without opening it, where it has only such keys. Raises RemoteProtocolError."""
    return () if unwanted and records.has_only_keys(batch, unwanted) else records.decode_records(batch)


async def fetch(
    opened: OwnConnection, place: ReplayPlace, left: Mapping[int, Replay], wait_ms: int = FETCH_WAIT_MS
) -> list[messages.FetchResponse.PartitionData]:
    """Ask for what follows in each of these partitions; the entries of the answer, errors included.

    `wait_ms`: how long a broker that has nothing new waits for it.
    """
    positions = {partition: replay.next_offset for partition, replay in left.items()}
    return await own_log.fetch(
        opened,
        place.topic,
        positions,
        wait_ms=wait_ms,
        max_bytes=FETCH_BYTES,
        partition_bytes=PARTITION_BYTES,
        topic_id=place.topic_id,
    )


async def offsets(opened: OwnConnection, topic: str, partitions: Iterable[int], timestamp: int) -> dict[int, int]:
    """Where the logs begin (EARLIEST) or end (LATEST). Raises UpstreamLost, also where this is not the leader."""
    found = {}
    for entry in await own_log.ask_offsets(opened, topic, partitions, timestamp):
        check(topic, entry.partition_index, entry.error_code)
        found[entry.partition_index] = entry.offset
    return found


def check(topic: str, partition: int, code: int) -> None:
    """Raise UpstreamLost for an error of a partition."""
    if code != ErrorCode.NONE:
        raise UpstreamLost(f"partition {partition} of {topic}: {error_name(code)}")
