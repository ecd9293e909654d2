"""The command `commits`: what a group has committed, in order and out of order, and the holes between.

Read from the brokers under the identity of the settings; no proxy has to run. What is stored in the topic of ranges is
read to its end and put together with what the brokers have as committed offset and metadata: ranges that a client wrote
without a proxy, or in a transaction, are in the latter.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio
from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxy.app import tls_contexts
from proxy.app.composition import own_settings
from proxy.app.config import Config
from proxy.brokers import own_log
from proxy.brokers.internal_topics import TopicLeaders
from proxy.brokers.own_client import OwnClient
from proxy.brokers.own_connection import OwnSettings, connection
from proxy.brokers.own_coordinator import CoordinatorRefused, coordinator_of
from proxy.brokers.questions import about_topics
from proxy.commits.held_state import HeldCommits
from proxy.commits.locked_partitions import text_of
from proxy.commits.model.partition_commits import PartitionCommits
from proxy.commits.state_records import INDIVIDUAL_COMMITS, decode_key
from proxy.durable import replay
from proxy.durable.partition_log import Replay
from proxy.durable.state_partitions import state_partition
from proxy.durable.state_topic import StateTopic
from proxy.offsets.commit_text import CommitText
from proxy.offsets.ranges import OffsetRanges, OffsetSpan
from proxy.wire import messages, records
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode, error_name
from proxy.wire.primitives import Buffer
from proxy.wire.values import Address, TopicPartition

OFFSET_FETCH_VERSION = 8
RECORD_BYTES = 1 << 20
"""Asked for to see when the record at a hole was written; a larger batch comes whole."""
WIDTH_ELSEWHERE = 400
RANGES_SHOWN = 5
"""Ranges of a partition in one line."""


@dataclass(frozen=True, slots=True)
class CommittedPartition:
    """What a group has committed of one partition."""

    place: TopicPartition
    committed_offset: int
    """The next one to read, moved over what is done."""
    ranges: OffsetRanges
    """Offsets behind the mark that are done."""
    user_text: str
    """The user's own metadata."""
    oldest_hole_s: float | None = None
    """How old its first record is; None where there is no hole, or nobody can tell."""

    @property
    def holes(self) -> Iterator[OffsetSpan]:
        """What is not done between the committed offset and the last range."""
        end = max((span.end for span in self.ranges), default=self.committed_offset)
        return self.ranges.gaps(self.committed_offset, end)

    @property
    def oldest_hole(self) -> OffsetSpan | None:
        """The one that keeps the committed offset back."""
        return next(self.holes, None)


@dataclass(frozen=True, slots=True)
class _Topic:
    """As Metadata tells it."""

    topic_id: bytes
    leaders: Mapping[int, int]


class _Look:
    """What is asked of the brokers for one group."""

    def __init__(self, client: OwnClient, settings: OwnSettings, group: str) -> None:
        self._client, self._settings, self._group = client, settings, group
        self._addresses: dict[int, Address] = {}

    async def partitions(self) -> list[CommittedPartition]:
        """What the group has committed, by topic and partition. Raises ProxyError."""
        stored, told = await self._stored(), await self._told()
        topics = await self._topics({place.topic for place in told})
        found = []
        for place, (offset, metadata) in sorted(told.items()):
            held, topic = stored.get(place, PartitionCommits()), topics.get(place.topic)
            if topic is not None:
                held.topic_is(topic.topic_id)
            text = _text_of(metadata)
            mark, ranges = held.shown(offset, text.ranges)
            read = CommittedPartition(place, mark, ranges, text.user_text or "")
            found.append(await self._with_age(read, topic))
        return found

    async def _stored(self) -> Mapping[TopicPartition, PartitionCommits]:
        """Ranges in their topic."""
        topic = await StateTopic(self._client, INDIVIDUAL_COMMITS).leaders()
        if topic is None:
            return {}
        read = await self._read(topic, state_partition(self._group))
        held = HeldCommits()
        await held.load(
            (key, value)
            for key, value in read.values.items()
            if not INDIVIDUAL_COMMITS.is_keep_alive(key) and decode_key(key).group_id == self._group
        )
        return held.group(self._group).partitions

    async def _read(self, topic: TopicLeaders, number: int) -> Replay:
        place = replay.ReplayPlace(
            INDIVIDUAL_COMMITS.topic, topic.leaders, topic.addresses, self._settings, topic.topic_id
        )
        end = (await replay.ends([number], place))[number]
        read = Replay(INDIVIDUAL_COMMITS.reign_of, end - 1)
        await replay.read({number: read}, place)
        return read

    async def _told(self) -> dict[TopicPartition, tuple[int, str]]:
        """The brokers' committed offsets and their metadata."""
        message = messages.OffsetFetchRequest
        request = message(groups=[message.OffsetFetchRequestGroup(group_id=self._group, topics=None)])
        async with connection(await coordinator_of(self._client, self._group), self._settings) as opened:
            (group,) = (await opened.ask(ApiKey.OFFSET_FETCH, request, version=OFFSET_FETCH_VERSION)).groups
        if group.error_code != ErrorCode.NONE:
            raise CoordinatorRefused(f"cannot read the offsets of group {self._group}: {error_name(group.error_code)}")
        return {
            TopicPartition(topic.name, entry.partition_index): (entry.committed_offset, entry.metadata or "")
            for topic in group.topics
            for entry in topic.partitions
            if entry.error_code == ErrorCode.NONE and entry.committed_offset >= 0
        }

    async def _topics(self, names: set[str]) -> dict[str, _Topic]:
        if not names:
            return {}
        answer, _ = await self._client.ask(ApiKey.METADATA, about_topics(sorted(names)))
        self._addresses = {
            broker.node_id: self._client.address_of(broker.node_id, Address(broker.host, broker.port))
            for broker in answer.brokers or ()
        }
        return {
            topic.name: _Topic(
                bytes(topic.topic_id), {each.partition_index: each.leader_id for each in topic.partitions}
            )
            for topic in answer.topics or ()
            if topic.error_code == ErrorCode.NONE and topic.name is not None
        }

    async def _with_age(self, read: CommittedPartition, topic: _Topic | None) -> CommittedPartition:
        """The same, with the age of the record that the oldest hole begins with, where that can be read."""
        hole = read.oldest_hole
        leader = None if topic is None else self._addresses.get(topic.leaders.get(read.place.partition, -1))
        if hole is None or leader is None:
            return read
        async with connection(leader, self._settings) as opened:
            (entry,) = await own_log.fetch(
                opened,
                read.place.topic,
                {read.place.partition: hole.start},
                wait_ms=0,
                max_bytes=RECORD_BYTES,
                partition_bytes=RECORD_BYTES,
            )
        written_ms = _written_ms(entry.records or b"", hole)
        if entry.error_code != ErrorCode.NONE or written_ms is None:
            return read
        age_s = max(0.0, time.time() - written_ms / 1000)
        return CommittedPartition(read.place, read.committed_offset, read.ranges, read.user_text, age_s)


def _text_of(metadata: str) -> CommitText:
    """What is said in metadata; what cannot be read is the user's."""
    return text_of(metadata) or CommitText(user_text=metadata)


def _written_ms(data: Buffer, hole: OffsetSpan) -> int | None:
    """When the first record of a hole was written; None: it holds none that can be read."""
    for batch in records.iter_batches(data):
        if batch.last_offset < hole.start or batch.is_control:
            continue
        for record in records.decode_records(data[batch.position : batch.end]):
            if hole.start <= record.offset < hole.end:
                return record.timestamp
    return None


async def look(config: Config, group: str) -> list[CommittedPartition]:
    """What a group has committed. Raises ProxyError."""
    settings = own_settings(config, tls_contexts.towards_brokers(config.upstream.tls))
    client = OwnClient(config.upstream.bootstrap, settings, config.upstream.nodes)
    try:
        return await _Look(client, settings, group).partitions()
    finally:
        with trio.CancelScope(shield=True):
            await client.aclose()


def run(config: Config, group: str, *, holes: bool, as_json: bool, console: Console | None = None) -> None:
    """Print it. Raises ProxyError."""
    try:
        found = trio.run(partial(look, config, group))
    except BaseExceptionGroup as several:
        error: BaseException = several
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None
    console = console or _console()
    if as_json:
        console.print_json(data=holes_of(group, found) if holes else report_of(group, found))
        return
    console.print(_holes_table(found) if holes else _table(found), markup=False)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH_ELSEWHERE)


# What other programs read: names stay, new ones may come


def report_of(group: str, found: list[CommittedPartition]) -> Mapping[str, Any]:
    """The JSON of `commits GROUP --json`."""
    return {"group": group, "partitions": [_partition_of(each) for each in found]}


def _partition_of(read: CommittedPartition) -> Mapping[str, Any]:
    hole = read.oldest_hole
    return {
        "topic": read.place.topic,
        "partition": read.place.partition,
        "committed_offset": read.committed_offset,
        "metadata": read.user_text,
        "range_count": len(read.ranges),
        "ranges": [{"first": span.start, "last": span.last} for span in read.ranges],
        "oldest_hole": None if hole is None else _span(hole) | {"age_s": read.oldest_hole_s},
    }


def holes_of(group: str, found: list[CommittedPartition]) -> Mapping[str, Any]:
    """The JSON of `commits GROUP --holes --json`: offsets to process again, for a backfill."""
    holes = [
        {"topic": each.place.topic, "partition": each.place.partition} | _span(hole)
        for each in found
        for hole in each.holes
    ]
    return {"group": group, "holes": holes}


def _span(span: OffsetSpan) -> dict[str, Any]:
    return {"first": span.start, "last": span.last}


# What people read


def _table(found: list[CommittedPartition]) -> Table:
    table = Table("PARTITION", "COMMITTED", "RANGES", "OLDEST HOLE", "AGE", "DONE BEHIND IT", box=None, pad_edge=False)
    for each in found:
        hole = each.oldest_hole
        shown = ",".join(map(str, list(each.ranges)[:RANGES_SHOWN]))
        more = ",..." if len(each.ranges) > RANGES_SHOWN else ""
        age = "-" if each.oldest_hole_s is None else f"{each.oldest_hole_s:.0f} s"
        cells = (_name(each.place), each.committed_offset, len(each.ranges), hole or "-", age, shown + more or "-")
        table.add_row(*(Text(str(cell)) for cell in cells))
    return table


def _holes_table(found: list[CommittedPartition]) -> Table:
    table = Table("PARTITION", "FIRST", "LAST", "OFFSETS", box=None, pad_edge=False)
    for each in found:
        for hole in each.holes:
            cells = (_name(each.place), hole.start, hole.last, hole.end - hole.start)
            table.add_row(*(Text(str(cell)) for cell in cells))
    return table


def _name(place: TopicPartition) -> str:
    return f"{place.topic}-{place.partition}"
