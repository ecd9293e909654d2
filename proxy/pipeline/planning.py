"""Which offsets a read takes: options and what the cluster says, made into splits (pipeline/README.md rules 8, 12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proxy.offsets.ranges import OffsetSpan
from proxy.pipeline.cluster import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ClusterClient, ReadRefused
from proxy.pipeline.log_reader import OffsetsLost, note_on_stderr
from proxy.pipeline.options import EARLIEST, LATEST, BadOption, Position, SourceOptions
from proxy.pipeline.splits import Split, make_splits
from proxy.wire.values import TopicPartition

_NAMED = {-2: EARLIEST, -1: LATEST}
Wanted = list[tuple[TopicPartition, OffsetSpan]]


class PlannedRead:
    """A cluster asked for one read, on the driver."""

    def __init__(self, cluster: ClusterClient, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options

    def places(self) -> list[TopicPartition]:
        """The partitions to read. Raises ReadRefused, Unavailable."""
        topics = self._cluster.topics(self._options.topics)
        there = [TopicPartition(name, each) for name, topic in topics.items() for each in sorted(topic.leaders)]
        wanted = self._options.assigned or tuple(dict.fromkeys(place for place, _ in self._options.offset_ranges))
        missing = set(wanted) - set(there)
        if missing:
            raise ReadRefused(f"{', '.join(map(str, sorted(missing)))}: no such partition")
        return list(wanted or there)

    def topic_ids(self) -> dict[str, bytes]:
        """By name."""
        return {name: topic.topic_id for name, topic in self._cluster.known_topics(self._options.topics).items()}

    def earliest(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs begin."""
        return self._cluster.offsets(places, EARLIEST_TIMESTAMP)

    def latest(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where they end, for a reader of this isolation level."""
        return self._cluster.offsets(places, LATEST_TIMESTAMP)

    def resolved(self, position: Position, places: Sequence[TopicPartition], default: str) -> dict[TopicPartition, int]:
        """Numbers for what the option says; partitions that it leaves out are at `default`. Raises BadOption."""
        said: dict[TopicPartition, int | str]
        if isinstance(position, str):
            said = dict.fromkeys(places, position)
        else:
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
        """What a batch read takes. Raises BadOption, OffsetsLost, ReadRefused, Unavailable."""
        places = self.places()
        first, last = self.earliest(places), self.latest(places)
        if self._options.offset_ranges:
            return [(place, self._there(place, span, first, last)) for place, span in self._options.offset_ranges]
        start = self.resolved(self._options.starting, places, EARLIEST)
        end = self.resolved(self._options.ending, places, LATEST)
        wanted = [(place, OffsetSpan(start[place], end[place])) for place in places if start[place] < end[place]]
        return [(place, self._there(place, span, first, last)) for place, span in wanted]

    def _there(
        self,
        place: TopicPartition,
        span: OffsetSpan,
        first: Mapping[TopicPartition, int],
        last: Mapping[TopicPartition, int],
    ) -> OffsetSpan:
        """The part of it that is in the log."""
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

    def splits(self, wanted: Wanted, keys: Sequence[bytes] | None = None) -> list[Split]:
        """Tasks for these offsets."""
        options = self._options
        return make_splits(wanted, self.topic_ids(), options.ranges, options.offset_splits, keys)


def restricted(wanted: Wanted, partitions: frozenset[int] | None, low: int, high: int | None) -> Wanted:
    """What is left of it after a predicate: partitions, and offsets low <= offset < high."""
    found = []
    for place, span in wanted:
        if partitions is not None and place.partition not in partitions:
            continue
        start, end = max(span.start, low), span.end if high is None else min(span.end, high)
        if start < end:
            found.append((place, OffsetSpan(start, end)))
    return found
