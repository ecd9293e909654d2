"""Commits for partitions that are read in slots of a view, all slots in one request (consumer/README.md rule 44)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_share_proxy.consumer.commits.commit_requests import CommitRequests
from kafka_share_proxy.consumer.commits.committed_requests import Committed, CommittedRequests, Deliver
from kafka_share_proxy.consumer.events import BackgroundEvent, ConsumerError
from kafka_share_proxy.consumer.fetch.key_filter import KeyFilter
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata, Partitions
from kafka_share_proxy.wire.values import TopicPartition


class SlotCommits:
    """Commits and committed offsets of one consumer: a partition is committed once for each slot that it reads.

    Without slots, every partition is committed under its name.
    """

    def __init__(self, key_filter: KeyFilter | None, commits: CommitRequests, committed: CommittedRequests) -> None:
        self._filter = key_filter if key_filter is not None and key_filter.slots else None
        self._commits = commits
        self._committed = committed

    def names(self, partition: TopicPartition) -> tuple[TopicPartition, ...]:
        """Return the topic-partitions under which a partition is committed."""
        return (partition,) if self._filter is None else self._filter.committed_as(partition)

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], call_id: int | None = None
    ) -> list[BackgroundEvent]:
        by_name = {name: offset for each, offset in offsets.items() for name in self.names(each)}
        return self._commits.commit(by_name, call_id)

    def is_settled(self, partitions: Iterable[TopicPartition]) -> bool:
        return self._commits.is_settled(name for each in partitions for name in self.names(each))

    def query(self, partitions: Partitions, deliver: Deliver, call_id: int | None = None) -> None:
        """Query committed offsets: the lowest one of several slots, or None if a slot has none."""
        names = {each: self.names(each) for each in partitions}

        def lowest(committed: Committed | ConsumerError) -> list[BackgroundEvent]:
            if isinstance(committed, ConsumerError):
                return deliver(committed)
            return deliver({each: _lowest([committed[name] for name in listed]) for each, listed in names.items()})

        self._committed.query(frozenset(name for listed in names.values() for name in listed), lowest, call_id)


def _lowest(committed: list[OffsetAndMetadata | None]) -> OffsetAndMetadata | None:
    known = [each for each in committed if each is not None]
    return min(known, key=lambda each: each.offset) if len(known) == len(committed) else None
