"""Command `commits`: what a group has committed, in order and out of order, and the holes in between.

It reads the topic of ranges to its end and merges it with the committed offsets and metadata of the brokers. Only the
latter contain ranges that a client wrote without a proxy or in a transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import trio
from rich.console import Console
from rich.table import Table

from kafka_share_proxy.app.commands import at_brokers, terminal
from kafka_share_proxy.app.commands.terminal import cell
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.brokers import topic_log
from kafka_share_proxy.brokers.internal_topics import TopicLeaders
from kafka_share_proxy.brokers.open_nodes import CoordinatorRefused, OpenNodes
from kafka_share_proxy.brokers.queries import CoordinatorOf, about_topics
from kafka_share_proxy.commits.held_state import HeldCommits
from kafka_share_proxy.commits.locked_partitions import text_of
from kafka_share_proxy.commits.model.partition_commits import PartitionCommits
from kafka_share_proxy.commits.state_records import INDIVIDUAL_COMMITS, decode_key
from kafka_share_proxy.durable import replay
from kafka_share_proxy.durable.partition_log import Replay
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.durable.state_topic import StateTopic
from kafka_share_proxy.offsets.commit_text import CommitText
from kafka_share_proxy.offsets.ranges import OffsetRanges, OffsetSpan
from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost, error_name
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.topic_ids import topic_id_text
from kafka_share_proxy.wire.values import ZERO_UUID, TopicPartition

RECORD_BYTES = 1 << 20
"""Bytes fetched to find out when the record at a hole was written."""
LEADER_TRIES, LEADER_PAUSE_S = 10, 0.5
"""Attempts to read the ranges while their leader moves, and the seconds between two of them."""
RANGES_SHOWN = 5
"""Ranges of a partition shown in one line."""


@dataclass(frozen=True, slots=True)
class CommittedPartition:
    """Commits of a group on one partition."""

    place: TopicPartition
    committed_offset: int
    """Offset of the next record to read, after all records that are done in order."""
    ranges: OffsetRanges
    user_text: str
    """Metadata of the user."""
    oldest_hole_s: float | None = None
    """Age of the first record of the oldest hole in seconds; None if there is no hole or the age is unknown."""
    topic_id: bytes = ZERO_UUID
    """Topic id; ZERO_UUID if unknown."""

    @property
    def holes(self) -> Iterator[OffsetSpan]:
        end = max((span.end for span in self.ranges), default=self.committed_offset)
        return self.ranges.gaps(self.committed_offset, end)

    @property
    def oldest_hole(self) -> OffsetSpan | None:
        """The hole that keeps the committed offset from advancing."""
        return next(self.holes, None)


class _GroupReader:
    """Queries to the brokers for one group."""

    def __init__(self, nodes: OpenNodes, group: str) -> None:
        self._nodes, self._group = nodes, group

    async def partitions(self) -> list[CommittedPartition]:
        """Return the commits of the group on all partitions. Raises ProxyError."""
        stored, committed = await self._stored(), await self._committed()
        topic_ids = await self._topic_ids({topic_partition.topic for topic_partition in committed})
        partitions = []
        for topic_partition, (offset, metadata) in sorted(committed.items()):
            partition_commits = stored.get(topic_partition, PartitionCommits())
            topic_id = topic_ids.get(topic_partition.topic)
            if topic_id is not None:
                partition_commits.topic_is(topic_id)
            text = _text_of(metadata)
            committed_offset, ranges = partition_commits.shown(offset, text.ranges)
            user_text = text.user_text or ""
            read = CommittedPartition(
                topic_partition, committed_offset, ranges, user_text, topic_id=topic_id or ZERO_UUID
            )
            partitions.append(read if topic_id is None else await self._with_age(read))
        return partitions

    async def exists(self) -> bool:
        """Return True if the coordinator lists the group. Raises ProxyError."""
        request = messages.ListGroupsRequest(states_filter=[], types_filter=[])
        coordinator = await self._nodes.coordinator(CoordinatorOf.GROUP, self._group)
        async with self._nodes.connection(coordinator) as opened:
            response = await opened.send_request(ApiKey.LIST_GROUPS, request)
        if response.error_code != ErrorCode.NONE:
            raise CoordinatorRefused(f"cannot list groups: {error_name(response.error_code)}")
        return any(each.group_id == self._group for each in response.groups or ())

    async def _stored(self) -> Mapping[TopicPartition, PartitionCommits]:
        """Look the leader up again while it moves, as in rolling restarts."""
        for attempt in range(LEADER_TRIES):
            topic = await StateTopic(self._nodes.client, INDIVIDUAL_COMMITS).leaders()
            if topic is None:
                return {}
            try:
                return await self._ranges_of(await self._read(topic, state_partition(self._group)))
            except UpstreamLost:
                if attempt == LEADER_TRIES - 1:
                    raise
            await trio.sleep(LEADER_PAUSE_S)
        return {}

    async def _ranges_of(self, read: Replay) -> Mapping[TopicPartition, PartitionCommits]:
        held_commits = HeldCommits()
        await held_commits.load(
            (key, value)
            for key, value in read.values.items()
            if not INDIVIDUAL_COMMITS.is_keep_alive(key) and decode_key(key).group_id == self._group
        )
        return held_commits.group(self._group).partitions

    async def _read(self, topic: TopicLeaders, number: int) -> Replay:
        replay_source = replay.ReplaySource(
            INDIVIDUAL_COMMITS.topic, topic.leaders, topic.addresses, self._nodes.client.settings, topic.topic_id
        )
        end = (await replay.ends([number], replay_source))[number]
        read = INDIVIDUAL_COMMITS.replay(end - 1)
        await replay.read({number: read}, replay_source)
        return read

    async def _committed(self) -> dict[TopicPartition, tuple[int, str]]:
        """Return the brokers' committed offsets and their metadata."""
        message = messages.OffsetFetchRequest
        request = message(groups=[message.OffsetFetchRequestGroup(group_id=self._group, topics=None)])
        group = await self._nodes.committed_offsets(request)
        return {
            TopicPartition(topic.name, entry.partition_index): (entry.committed_offset, entry.metadata or "")
            for topic in group.topics
            for entry in topic.partitions
            if entry.error_code == ErrorCode.NONE and entry.committed_offset >= 0
        }

    async def _topic_ids(self, names: set[str]) -> dict[str, bytes]:
        if not names:
            return {}
        response, _ = await self._nodes.client.send_request(ApiKey.METADATA, about_topics(sorted(names)))
        return {
            topic.name: bytes(topic.topic_id)
            for topic in response.topics or ()
            if topic.error_code == ErrorCode.NONE and topic.name is not None
        }

    async def _with_age(self, read: CommittedPartition) -> CommittedPartition:
        hole = read.oldest_hole
        if hole is None or read.place.partition not in await self._nodes.partitions_with_leader(read.place.topic):
            return read
        async with self._nodes.connection(await self._nodes.leader(read.place)) as opened:
            (entry,) = await topic_log.fetch(
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
        return replace(read, oldest_hole_s=age_s)


def _text_of(metadata: str) -> CommitText:
    """Decode commit metadata. Text in another format is the user's."""
    return text_of(metadata) or CommitText(user_text=metadata)


def _written_ms(data: Buffer, hole: OffsetSpan) -> int | None:
    """Return the timestamp of the first record of a hole, or None if no record is readable."""
    for batch in records.iter_batches(data):
        if batch.last_offset < hole.start or batch.is_control:
            continue
        for record in records.decode_records(data[batch.position : batch.end]):
            if hole.start <= record.offset < hole.end:
                return record.timestamp
    return None


class NoSuchGroup(ProxyError):
    """The brokers list no group of this name."""


async def committed_partitions(config: Config, group: str) -> list[CommittedPartition]:
    """Return what a group has committed; empty for a group that has committed nothing yet.

    Raises:
        NoSuchGroup: the brokers list no such group, or hide it from the identity of the settings.
        ProxyError: the brokers cannot be reached, or refuse.
    """
    async with at_brokers.open_nodes(config) as nodes:
        reader = _GroupReader(nodes, group)
        commits = await reader.partitions()
        if not commits and not await reader.exists():
            raise NoSuchGroup(
                f"the brokers list no group {group!a}: check the name (kafka-consumer-groups.sh --list), and that "
                "the identity of upstream.sasl has DESCRIBE on the group"
            )
        return commits


def run(config: Config, group: str, *, holes: bool, as_json: bool, console: Console | None = None) -> None:
    """Print the commits of a group. Raises ProxyError."""
    commits = at_brokers.run(partial(committed_partitions, config, group))
    console = console or terminal.console()
    if as_json:
        terminal.print_json(console, holes_of(group, commits) if holes else report_of(group, commits))
    elif commits:
        console.print(_holes_table(commits) if holes else _table(commits), markup=False)
    else:
        console.print(cell(f"Group {group!a} has no committed offsets."))


# Read by other programs: names stay, new ones may be added


def report_of(group: str, partitions: list[CommittedPartition]) -> Mapping[str, Any]:
    """Return the JSON of `commits GROUP --json`."""
    return {"group": group, "partitions": [_partition_of(each) for each in partitions]}


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


def holes_of(group: str, partitions: list[CommittedPartition]) -> Mapping[str, Any]:
    """Return the JSON for a backfill."""
    holes = [
        {"topic": each.place.topic, "partition": each.place.partition} | _id(each.topic_id) | _span(hole)
        for each in partitions
        for hole in each.holes
    ]
    return {"group": group, "holes": holes}


def _id(topic_id: bytes) -> dict[str, Any]:
    """Return the topic id, by which a backfill notices a recreated topic."""
    return {} if topic_id == ZERO_UUID else {"topic_id": topic_id_text(topic_id)}


def _span(span: OffsetSpan) -> dict[str, Any]:
    return {"first": span.start, "last": span.last}


# Read by people


def _table(partitions: list[CommittedPartition]) -> Table:
    table = Table("PARTITION", "COMMITTED", "RANGES", "OLDEST HOLE", "AGE", "DONE BEHIND IT", box=None, pad_edge=False)
    for each in partitions:
        hole = each.oldest_hole
        shown = ",".join(map(str, list(each.ranges)[:RANGES_SHOWN]))
        more = ",..." if len(each.ranges) > RANGES_SHOWN else ""
        age = "-" if each.oldest_hole_s is None else f"{each.oldest_hole_s:.0f} s"
        cells = (_name(each.place), each.committed_offset, len(each.ranges), hole or "-", age, shown + more or "-")
        table.add_row(*map(cell, cells))
    return table


def _holes_table(partitions: list[CommittedPartition]) -> Table:
    table = Table("PARTITION", "FIRST", "LAST", "OFFSETS", box=None, pad_edge=False)
    for each in partitions:
        for hole in each.holes:
            cells = (_name(each.place), hole.start, hole.last, hole.end - hole.start)
            table.add_row(*map(cell, cells))
    return table


def _name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"
