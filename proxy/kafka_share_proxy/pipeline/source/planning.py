"""Planner of reads: converts options and the offsets of the cluster into splits (pipeline/README.md rules 8, 12)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kafka_share_proxy.offsets.ranges import OffsetRanges, OffsetSpan
from kafka_share_proxy.pipeline.kafka.cluster import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ClusterClient,
    ReadRefused,
    TopicReplaced,
)
from kafka_share_proxy.pipeline.source.log_reader import OffsetsLost, note_on_stderr
from kafka_share_proxy.pipeline.source.options import EARLIEST, LATEST, BadOption, Position, SourceOptions
from kafka_share_proxy.pipeline.source.splits import Split, make_splits
from kafka_share_proxy.wire.topic_ids import topic_id_text
from kafka_share_proxy.wire.values import ZERO_UUID, TopicPartition

_NAMED = {-2: EARLIEST, -1: LATEST}
Wanted = list[tuple[TopicPartition, OffsetSpan]]


class PlannedRead:
    """Planner of one read, on the driver."""

    def __init__(self, cluster: ClusterClient, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options

    def places(self) -> list[TopicPartition]:
        """Return the partitions to read. Raises ReadRefused, Unavailable."""
        topics = self._cluster.topics(self._options.topics)
        there = [TopicPartition(name, each) for name, topic in topics.items() for each in sorted(topic.leaders)]
        wanted = self._options.assigned or tuple(dict.fromkeys(place for place, _ in self._options.offset_ranges))
        missing = set(wanted) - set(there)
        if missing:
            raise ReadRefused(f"{', '.join(map(str, sorted(missing)))}: no such partition")
        return list(wanted or there)

    def topic_ids(self) -> dict[str, bytes]:
        return {name: topic.topic_id for name, topic in self._cluster.known_topics(self._options.topics).items()}

    def replaced(self, ids: Mapping[str, bytes]) -> set[str]:
        """Return the topics that were deleted and created again: their id is not the one in `ids`.

        Raises:
            TopicReplaced: there are such topics, and failOnDataLoss is true.
            ReadRefused, Unavailable: the text has the reason.
        """
        now = self.topic_ids()
        found = {
            topic
            for topic, topic_id in ids.items()
            if topic in now and ZERO_UUID not in (topic_id, now[topic]) and now[topic] != topic_id
        }
        for topic in sorted(found):
            self._lost(
                TopicReplaced,
                f"topic {topic} was deleted and created again: offsets that are kept belong to topic id "
                f"{topic_id_text(ids[topic])}, and the topic has id {topic_id_text(now[topic])} now",
                "continues with the first offset of the new topic",
            )
        return found

    def truncated(
        self, begun: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> list[TopicPartition]:
        """Return the partitions whose log ends before the offset that was reached.

        Metadata is refreshed first, because an old leader may report an old end.

        Raises:
            OffsetsLost: there are such partitions, and failOnDataLoss is true.
            ReadRefused, Unavailable: the text has the reason.
        """
        shorter = [place for place, end in latest.items() if end < begun.get(place, end)]
        if not shorter:
            return []
        self._cluster.forget()
        ends = self.latest(shorter)
        shorter = [place for place in shorter if ends[place] < begun[place]]
        for place in shorter:
            self._lost(
                OffsetsLost,
                f"{place}: the log ends at offset {ends[place]}, and offset {begun[place]} was reached: the topic was "
                "deleted and created again, or lost its last records with a leader",
                "continues with what the log has",
            )
        return shorter

    def _lost(self, kind: type[TopicReplaced | OffsetsLost], text: str, otherwise: str) -> None:
        if self._options.fail_on_data_loss:
            raise kind(f"{text} (failOnDataLoss=false {otherwise})")
        note_on_stderr(text)

    def earliest(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each log."""
        return self._cluster.offsets(places, EARLIEST_TIMESTAMP)

    def latest(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offset of each log, for a reader with this isolation level."""
        return self._cluster.offsets(places, LATEST_TIMESTAMP)

    def resolved(
        self,
        position: Position,
        places: Sequence[TopicPartition],
        default: str,
        replaced: Collection[str] = (),
    ) -> dict[TopicPartition, int]:
        """Return the offsets that the option means.

        Partitions that it leaves out are at `default`. Raises BadOption.

        Args:
            position: the option.
            places: all partitions that are read.
            default: EARLIEST or LATEST.
            replaced: topics that the option was not written for (`replaced`): they are at `default`, too.
        """
        said: dict[TopicPartition, int | str]
        if isinstance(position, str):
            said = dict.fromkeys(places, position)
        else:
            position = {place: offset for place, offset in position.items() if place.topic not in replaced}
            strange = set(position) - set(places)
            if strange:
                raise BadOption(f"offsets are given for {', '.join(map(str, sorted(strange)))}, which is not read")
            said = {place: _NAMED.get(offset := position.get(place, -3), offset) for place in places}
            said = {place: default if value == -3 else value for place, value in said.items()}
        first = self.earliest([place for place, value in said.items() if value == EARLIEST])
        last = self.latest([place for place, value in said.items() if value == LATEST])
        return {
            place: value if isinstance(value, int) else (first if value == EARLIEST else last)[place]
            for place, value in said.items()
        }

    def batch(self) -> Wanted:
        """Return the offsets of a batch read. Raises BadOption, OffsetsLost, ReadRefused, Unavailable."""
        places = self.places()
        gone = self.replaced(self._options.topic_ids)
        places = [place for place in places if place.topic not in gone]
        first, last = self.earliest(places), self.latest(places)
        if self._options.offset_ranges:
            ranges = [(place, span) for place, span in self._options.offset_ranges if place.topic not in gone]
            return [(place, self._there(place, span, first, last)) for place, span in ranges]
        start = self.resolved(self._options.starting, places, EARLIEST, gone)
        end = self.resolved(self._options.ending, places, LATEST, gone)
        wanted = [(place, OffsetSpan(start[place], end[place])) for place in places if start[place] < end[place]]
        return [(place, self._there(place, span, first, last)) for place, span in wanted]

    def _there(
        self,
        place: TopicPartition,
        span: OffsetSpan,
        first: Mapping[TopicPartition, int],
        last: Mapping[TopicPartition, int],
    ) -> OffsetSpan:
        """Return the part of a range that is in the log. Raises OffsetsLost, ReadRefused."""
        if span.end > last[place]:
            word = "last stable" if self._options.is_committed else "last"
            raise ReadRefused(f"{place}: {span} was asked for, and the {word} offset is {last[place] - 1}")
        if span.start >= first[place]:
            return span
        text = f"{place}: offsets {span.start}-{min(first[place], span.end) - 1} are not in the log any more"
        if self._options.fail_on_data_loss:
            raise OffsetsLost(f"{text} (failOnDataLoss=false goes on behind them)")
        note_on_stderr(text)
        return OffsetSpan(min(first[place], span.end), span.end)

    def splits(
        self, wanted: Wanted, keys: Sequence[bytes] | None = None, ids: Mapping[str, bytes] | None = None
    ) -> list[Split]:
        """Return the tasks for these offsets.

        Args:
            wanted: offsets by partition; those of `exceptOffsets` are left out.
            keys: only these keys; None for all.
            ids: topic name -> id of the topic that the offsets belong to, if the caller knows it.
        """
        options = self._options
        named = self.topic_ids() | dict(ids or {})
        return make_splits(self._without_excepted(wanted, named), named, options.ranges, options.offset_splits, keys)

    def _without_excepted(self, wanted: Wanted, ids: Mapping[str, bytes]) -> Wanted:
        options = self._options
        excepted: dict[TopicPartition, OffsetRanges] = {}
        for place, span in options.excepted:
            if options.topic_ids.get(place.topic, ids.get(place.topic)) == ids.get(place.topic):
                excepted.setdefault(place, OffsetRanges()).merge_all([span])
        return [
            (place, part)
            for place, span in wanted
            for part in (excepted[place].gaps(*span) if place in excepted else (span,))
        ]


def restricted(wanted: Wanted, partitions: frozenset[int] | None, low: int, high: int | None) -> Wanted:
    """Return the offsets that are left after a predicate: in `partitions`, and low <= offset < high."""
    found = []
    for place, span in wanted:
        if partitions is not None and place.partition not in partitions:
            continue
        start, end = max(span.start, low), span.end if high is None else min(span.end, high)
        if start < end:
            found.append((place, OffsetSpan(start, end)))
    return found
