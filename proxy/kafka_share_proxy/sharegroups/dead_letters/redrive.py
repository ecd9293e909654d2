"""Redrive: dead letters are produced to the topic of their records again, each once (sharegroups/README.md rule 93).

How it works: progress is committed by a consumer group of the redrive, as a committed offset and ranges of finished
offsets after it (offsets/README.md). One transaction contains the records of one Fetch and the progress after them. A
redrive that is killed leaves an open transaction, which the next one aborts before it reads the progress.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_share_proxy.brokers.committing_producer import CommittingProducer
from kafka_share_proxy.brokers.open_nodes import OpenNodes
from kafka_share_proxy.offsets.commit_text import CommitText, CommitTextError, commit_text_version, parse_commit_text
from kafka_share_proxy.offsets.ranges import OffsetRanges
from kafka_share_proxy.sharegroups.dead_letters.letter_log import (
    Condition,
    LetterBatch,
    StoredLetter,
    letters_of,
    log_bounds,
    records_at,
)
from kafka_share_proxy.sharegroups.dead_letters.letter_records import source_headers
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost, error_name
from kafka_share_proxy.wire.records.records import Record
from kafka_share_proxy.wire.values import TopicPartition

GROUP_PREFIX = "kafka-share-proxy-redrive."
"""Prefix of the consumer group that has the progress for a share group."""
TRANSACTIONAL_PREFIX = "__proxy-redrive-"
METADATA_MAX = 4_000
"""Maximum characters of the ranges committed (offset.metadata.max.bytes is 4,096 by default)."""


class RedriveFailed(ProxyError):
    """Nothing more can be redriven. What was committed stays."""


@dataclass(slots=True)
class RedriveProgress:
    """Finished offsets of one partition of the topic for dead letters."""

    committed: int
    done: OffsetRanges

    def finish(self, start: int, end: int, skipped: Iterable[int]) -> None:
        """Note that `[start, end)` is finished, except the skipped offsets (ascending)."""
        for offset in skipped:
            if start < offset:
                self.done.merge(start, offset)
            start = offset + 1
        if start < end:
            self.done.merge(start, end)
        self.committed, _ = self.done.absorb(self.committed)

    def text(self) -> str:
        """Return the metadata to commit. Raises RedriveFailed if there are too many gaps."""
        text = str(CommitText(self.done)) if len(self.done) else ""
        if len(text) > METADATA_MAX:
            raise RedriveFailed(
                f"--where has left {len(self.done)} gaps, more than a committed offset can describe: redrive those "
                "dead letters too, or use a wider condition"
            )
        return text


@dataclass(slots=True)
class Redriven:
    """Totals of a redrive."""

    records: dict[str, int] = field(default_factory=dict)
    """Number of records by target topic."""
    missing: int = 0
    """Dead letters without key and value whose record no longer exists. They stay."""
    not_chosen: int = 0
    """Dead letters that the condition excluded."""

    @property
    def total(self) -> int:
        return sum(self.records.values())


class PartitionToRedrive(NamedTuple):
    """Partition of the topic for dead letters with its progress."""

    topic_partition: TopicPartition
    progress: RedriveProgress
    start: int
    end: int
    """Offsets `[start, end)` are to be read."""


class Redrive:
    """A redrive of one share group's dead letters."""

    def __init__(
        self,
        nodes: OpenNodes,
        group: str,
        topic: str,
        *,
        to: str | None = None,
        limit: int | None = None,
        conditions: Sequence[Condition] = (),
        is_dry: bool = False,
        wall_ms: Callable[[], int],
    ) -> None:
        """`topic`: topic of the dead letters. `to`: target, instead of the topic of each record."""
        self._nodes, self._group, self._topic, self._wall_ms = nodes, group, topic, wall_ms
        self._to, self._limit, self._conditions, self._is_dry = to, limit, conditions, is_dry
        self._consumer_group = GROUP_PREFIX + group
        self._producer = CommittingProducer(nodes, TRANSACTIONAL_PREFIX + group, self._consumer_group)
        self.totals = Redriven()

    async def run(self) -> Redriven:
        """Redrive what is stored now. Raises ProxyError, and RedriveFailed."""
        if not self._is_dry:
            await self._producer.identify()
        for topic_partition, progress, start, end in await self._partitions():
            async with aclosing(
                letters_of(self._nodes, topic_partition, self._group, start, end, progress.done)
            ) as batches:
                async for batch in batches:
                    start = await self._redrive(topic_partition, progress, start, batch)
                    if self._remaining() == 0:
                        return self.totals
        return self.totals

    async def pending(self) -> AsyncGenerator[StoredLetter, None]:
        """Yield the dead letters that were not redriven yet and fulfil the conditions. Raises ProxyError."""
        for topic_partition, progress, start, end in await self._partitions():
            async with aclosing(
                letters_of(self._nodes, topic_partition, self._group, start, end, progress.done)
            ) as batches:
                async for batch in batches:
                    for letter in batch.letters:
                        if self._is_chosen(letter):
                            yield letter

    async def _partitions(self) -> list[PartitionToRedrive]:
        """Return all partitions of the topic. Raises ProxyError."""
        count = await self._nodes.partitions_of(self._topic)
        if not count:
            raise RedriveFailed(f"topic {self._topic} does not exist")
        topic_partitions = [TopicPartition(self._topic, partition) for partition in range(count)]
        committed = await self._committed(topic_partitions)
        partitions = []
        for topic_partition in topic_partitions:
            first, end = await log_bounds(self._nodes, topic_partition)
            progress = committed.get(topic_partition) or RedriveProgress(first, OffsetRanges())
            partitions.append(PartitionToRedrive(topic_partition, progress, max(first, progress.committed), end))
        return partitions

    def _is_chosen(self, letter: StoredLetter) -> bool:
        return all(condition.holds(letter) for condition in self._conditions)

    def _remaining(self) -> int | None:
        return None if self._limit is None else max(0, self._limit - self.totals.total)

    async def _redrive(
        self, topic_partition: TopicPartition, progress: RedriveProgress, start: int, batch: LetterBatch
    ) -> int:
        """Redrive the letters of one Fetch. Return the offset after it."""
        chosen = [letter for letter in batch.letters if self._is_chosen(letter)]
        remaining, end = self._remaining(), batch.next_offset
        if remaining is not None and len(chosen) > remaining:
            end = chosen[remaining].record.offset
            chosen = chosen[:remaining]
        letters = [letter for letter in batch.letters if letter.record.offset < end]
        originals = await self._originals(chosen)
        records: dict[TopicPartition, list[Record]] = {}
        redriven_offsets: set[int] = set()
        now_ms = self._wall_ms()
        for letter in chosen:
            original = (
                letter.record if letter.is_copied else originals.get((letter.topic, letter.partition, letter.offset))
            )
            if original is None:
                self.totals.missing += 1
                continue
            target = await self._target(letter)
            redriven_offsets.add(letter.record.offset)
            records.setdefault(target, []).append(
                Record(original.key, original.value, tuple(source_headers(original)), now_ms)
            )
        skipped = [letter.record.offset for letter in letters if letter.record.offset not in redriven_offsets]
        self.totals.not_chosen += sum(not self._is_chosen(letter) for letter in letters)
        if not self._is_dry and (records or len(skipped) < end - start):
            progress.finish(start, end, skipped)
            await self._producer.commit(records, {topic_partition: (progress.committed, progress.text())})
        for target, sent_records in records.items():
            self.totals.records[target.topic] = self.totals.records.get(target.topic, 0) + len(sent_records)
        return end

    async def _originals(self, chosen: Iterable[StoredLetter]) -> Mapping[tuple[str, int, int], Record]:
        """Return the failed records, by topic, partition and offset, of letters without copies, if they exist."""
        to_read: dict[TopicPartition, set[int]] = {}
        for letter in chosen:
            if not letter.is_copied:
                to_read.setdefault(TopicPartition(letter.topic, letter.partition), set()).add(letter.offset)
        originals: dict[tuple[str, int, int], Record] = {}
        for topic_partition, offsets in to_read.items():
            records = await records_at(self._nodes, topic_partition, sorted(offsets))
            originals.update(
                ((topic_partition.topic, topic_partition.partition, offset), record)
                for offset, record in records.items()
            )
        return originals

    async def _target(self, letter: StoredLetter) -> TopicPartition:
        topic = self._to or letter.topic
        count = await self._nodes.partitions_of(topic)
        if not count:
            raise RedriveFailed(f"topic {topic} does not exist: name another with --to")
        return TopicPartition(topic, letter.partition % count)

    async def _committed(self, topic_partitions: Sequence[TopicPartition]) -> dict[TopicPartition, RedriveProgress]:
        """Return the progress committed so far. Waits for the end of an open transaction."""
        message = messages.OffsetFetchRequest
        topics = [
            message.OffsetFetchRequestTopics(
                name=self._topic, partition_indexes=[topic_partition.partition for topic_partition in topic_partitions]
            )
        ]
        request = message(
            groups=[message.OffsetFetchRequestGroup(group_id=self._consumer_group, topics=topics)],
            require_stable=not self._is_dry,
        )
        group = await self._nodes.committed_offsets(request)
        committed: dict[TopicPartition, RedriveProgress] = {}
        for topic in group.topics:
            for entry in topic.partitions:
                if entry.error_code != ErrorCode.NONE:
                    reason = error_name(entry.error_code)
                    raise UpstreamLost(f"cannot read the progress of {self._consumer_group}: {reason}")
                if entry.committed_offset >= 0:
                    progress = RedriveProgress(entry.committed_offset, _ranges_of(entry.metadata))
                    committed[TopicPartition(topic.name, entry.partition_index)] = progress
        return committed


def _ranges_of(metadata: str | None) -> OffsetRanges:
    """Return the finished ranges in the metadata of a commit. Raises RedriveFailed if they cannot be read."""
    if not metadata or commit_text_version(metadata) is None:
        return OffsetRanges()
    try:
        return parse_commit_text(metadata).ranges
    except CommitTextError as error:
        raise RedriveFailed(f"the progress of an earlier redrive cannot be read: {error}") from None
