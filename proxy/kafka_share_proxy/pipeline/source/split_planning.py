"""Planner of reads: converts options and the offsets of the cluster into splits (pipeline/README.md rules 8, 12)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kafka_share_proxy.offsets.ranges import OffsetRanges, OffsetSpan
from kafka_share_proxy.pipeline.kafka.cluster import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    BlockingClusterClient,
    ReadRefused,
    TopicReplaced,
)
from kafka_share_proxy.pipeline.source.log_reader import OffsetsLost, note_on_stderr
from kafka_share_proxy.pipeline.source.options import EARLIEST, LATEST, BadOption, Position, SourceOptions
from kafka_share_proxy.pipeline.source.splits import Split, make_splits
from kafka_share_proxy.wire.topic_ids import topic_id_text
from kafka_share_proxy.wire.values import ZERO_UUID, TopicPartition

_SPECIAL_OFFSETS = {-2: EARLIEST, -1: LATEST}
RequestedOffsets = list[tuple[TopicPartition, OffsetSpan]]


class PlannedRead:
    """Planner of one read, on the driver."""

    def __init__(self, cluster: BlockingClusterClient, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions to read. Raises ReadRefused if one does not exist, Unavailable."""
        topics = self._cluster.topics(self._options.topics)
        existing = [TopicPartition(name, each) for name, topic in topics.items() for each in sorted(topic.leaders)]
        requested = self._options.assigned or tuple(
            dict.fromkeys(partition for partition, _ in self._options.offset_ranges)
        )
        missing = set(requested) - set(existing)
        if missing:
            raise ReadRefused(f"{', '.join(map(str, sorted(missing)))}: no such partition")
        return list(requested or existing)

    def topic_ids(self) -> dict[str, bytes]:
        return {name: topic.topic_id for name, topic in self._cluster.known_topics(self._options.topics).items()}

    def replaced(self, ids: Mapping[str, bytes]) -> set[str]:
        """Return the topics with another id than in `ids`.

        Raises TopicReplaced if failOnDataLoss is true, ReadRefused, Unavailable.
        """
        now = self.topic_ids()
        topics = {
            topic
            for topic, topic_id in ids.items()
            if topic in now and ZERO_UUID not in (topic_id, now[topic]) and now[topic] != topic_id
        }
        for topic in sorted(topics):
            self._lost(
                TopicReplaced,
                f"topic {topic} was deleted and created again: offsets that are kept belong to topic id "
                f"{topic_id_text(ids[topic])}, and the topic has id {topic_id_text(now[topic])} now",
                "continues with the first offset of the new topic",
            )
        return topics

    def truncated(
        self, reached_offsets: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> list[TopicPartition]:
        """Return the partitions whose log ends before the offset that was reached.

        Metadata is refreshed first, because an old leader may report an old end. Raises OffsetsLost if failOnDataLoss
        is true, ReadRefused, Unavailable.
        """
        shorter = [partition for partition, end in latest.items() if end < reached_offsets.get(partition, end)]
        if not shorter:
            return []
        self._cluster.forget()
        ends = self.latest(shorter)
        shorter = [partition for partition in shorter if ends[partition] < reached_offsets[partition]]
        for partition in shorter:
            self._lost(
                OffsetsLost,
                f"{partition}: the log ends at offset {ends[partition]}, and offset {reached_offsets[partition]} was "
                "reached: the topic was deleted and created again, or lost its last records with a leader",
                "continues with what the log has",
            )
        return shorter

    def _lost(self, kind: type[TopicReplaced | OffsetsLost], text: str, otherwise: str) -> None:
        if self._options.fail_on_data_loss:
            raise kind(f"{text} (failOnDataLoss=false {otherwise})")
        note_on_stderr(text)

    def earliest(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return self._cluster.offsets(partitions, EARLIEST_TIMESTAMP)

    def latest(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offset of each log under this isolation level."""
        return self._cluster.offsets(partitions, LATEST_TIMESTAMP)

    def resolve(
        self,
        position: Position,
        partitions: Sequence[TopicPartition],
        default: str,
        replaced: Collection[str] = (),
    ) -> dict[TopicPartition, int]:
        """Return the offsets that the option means.

        Partitions that it leaves out, and topics that it was not written for (`replaced`), are at `default`: EARLIEST
        or LATEST. Raises BadOption.
        """
        resolved_values: dict[TopicPartition, int | str]
        if isinstance(position, str):
            resolved_values = dict.fromkeys(partitions, position)
        else:
            position = {partition: offset for partition, offset in position.items() if partition.topic not in replaced}
            strange = set(position) - set(partitions)
            if strange:
                raise BadOption(f"offsets are given for {', '.join(map(str, sorted(strange)))}, which is not read")
            resolved_values = dict.fromkeys(partitions, default)
            resolved_values |= {
                partition: _SPECIAL_OFFSETS.get(offset, offset) for partition, offset in position.items()
            }
        first = self.earliest([partition for partition, value in resolved_values.items() if value == EARLIEST])
        last = self.latest([partition for partition, value in resolved_values.items() if value == LATEST])
        return {
            partition: value if isinstance(value, int) else (first if value == EARLIEST else last)[partition]
            for partition, value in resolved_values.items()
        }

    def batch(self) -> RequestedOffsets:
        """Return the offsets that a batch read requests. Raises BadOption, OffsetsLost, ReadRefused, Unavailable."""
        partitions = self.partitions()
        replaced = self.replaced(self._options.topic_ids)
        partitions = [partition for partition in partitions if partition.topic not in replaced]
        first, last = self.earliest(partitions), self.latest(partitions)
        if self._options.offset_ranges:
            ranges = [
                (partition, span) for partition, span in self._options.offset_ranges if partition.topic not in replaced
            ]
            return [(partition, self._available(partition, span, first, last)) for partition, span in ranges]
        start = self.resolve(self._options.starting, partitions, EARLIEST, replaced)
        end = self.resolve(self._options.ending, partitions, LATEST, replaced)
        requested = [
            (partition, OffsetSpan(start[partition], end[partition]))
            for partition in partitions
            if start[partition] < end[partition]
        ]
        return [(partition, self._available(partition, span, first, last)) for partition, span in requested]

    def _available(
        self,
        partition: TopicPartition,
        span: OffsetSpan,
        first: Mapping[TopicPartition, int],
        last: Mapping[TopicPartition, int],
    ) -> OffsetSpan:
        """Return the part of a requested range that the log contains. Raises OffsetsLost, ReadRefused."""
        if span.end > last[partition]:
            word = "last stable" if self._options.is_committed else "last"
            raise ReadRefused(f"{partition}: {span} was requested, and the {word} offset is {last[partition] - 1}")
        if span.start >= first[partition]:
            return span
        text = f"{partition}: offsets {span.start}-{min(first[partition], span.end) - 1} are no longer in the log"
        if self._options.fail_on_data_loss:
            raise OffsetsLost(f"{text} (failOnDataLoss=false continues after them)")
        note_on_stderr(text)
        return OffsetSpan(min(first[partition], span.end), span.end)

    def splits(
        self, requested: RequestedOffsets, keys: Sequence[bytes] | None = None, ids: Mapping[str, bytes] | None = None
    ) -> list[Split]:
        """Return the splits of requested offsets, without `exceptOffsets`.

        `keys` None: all. `ids`: topic ids, if the caller knows them.
        """
        options = self._options
        topic_ids = self.topic_ids() | dict(ids or {})
        return make_splits(
            self._without_excepted(requested, topic_ids), topic_ids, options.ranges, options.offset_splits, keys
        )

    def _without_excepted(self, requested: RequestedOffsets, ids: Mapping[str, bytes]) -> RequestedOffsets:
        options = self._options
        excepted: dict[TopicPartition, OffsetRanges] = {}
        for partition, span in options.excepted:
            if options.topic_ids.get(partition.topic, ids.get(partition.topic)) == ids.get(partition.topic):
                excepted.setdefault(partition, OffsetRanges()).merge_all([span])
        return [
            (partition, part)
            for partition, span in requested
            for part in (excepted[partition].gaps(*span) if partition in excepted else (span,))
        ]


def restricted(
    requested: RequestedOffsets, partitions: frozenset[int] | None, low: int, high: int | None
) -> RequestedOffsets:
    """Return offsets in `partitions` with low <= offset < high."""
    narrowed = []
    for partition, span in requested:
        if partitions is not None and partition.partition not in partitions:
            continue
        start, end = max(span.start, low), span.end if high is None else min(span.end, high)
        if start < end:
            narrowed.append((partition, OffsetSpan(start, end)))
    return narrowed
