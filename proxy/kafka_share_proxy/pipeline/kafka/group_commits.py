"""Committed offsets and ranges of a group, and commits for a group without members (pipeline/README.md rule 39)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from kafka_share_proxy.offsets.commit_text import (
    CommitTextError,
    commit_text_version,
    parse_commit_text,
    write_commit_text,
)
from kafka_share_proxy.offsets.ranges import OffsetRanges, OffsetSpan
from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient, Deadline, check_code
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError
from kafka_share_proxy.wire.values import TopicPartition

OFFSET_FETCH_VERSION_MAX, OFFSET_COMMIT_VERSION_MAX = 7, 8
"""Highest versions used. Later versions have other layouts."""


class GroupHasMembers(ProxyError):
    """The group has members, and only they may commit for it."""


class NothingCommitted(ProxyError):
    """The group has no committed offset of a partition in the commit."""


class CommittedState(NamedTuple):
    """Committed state of one partition."""

    offset: int
    ranges: OffsetRanges
    """Ranges beyond the committed offset that are done."""
    user_text: str | None = None
    """The user's own text in the commit's metadata. Commits keep it."""

    def not_done(self, span: OffsetSpan) -> list[OffsetSpan]:
        """Return the parts of a range that are neither committed nor done."""
        return list(self.ranges.gaps(max(span.start, self.offset), span.end)) if span.end > self.offset else []


class CommitsOfGroup:
    """Commits of one group, through a proxy."""

    def __init__(self, cluster: BlockingClusterClient, group: str) -> None:
        self._cluster = cluster
        self._group = group

    def states(self) -> dict[TopicPartition, CommittedState]:
        """Return the state of all partitions with a committed offset. Raises ReadRefused, Unavailable."""
        return self._cluster.retry(self._request_states)

    def commit(self, done: Mapping[TopicPartition, Iterable[OffsetSpan]]) -> None:
        """Commit done offsets. The committed offset moves only if one of them touches it.

        Raises GroupHasMembers, NothingCommitted, and ProxyError if the commit failed or its outcome is unknown.
        Repeating it is harmless.
        """
        states = self.states()
        for partition in done:
            if partition not in states:
                raise NothingCommitted(
                    f"group {self._group} has committed nothing of {partition}: it has no holes there"
                )
        texts = {
            partition: write_commit_text(spans, (), states[partition].user_text) for partition, spans in done.items()
        }
        offsets = {partition: states[partition].offset for partition in texts}
        self._cluster.retry(lambda: self._send_commit(texts, offsets))

    def commit_offsets(self, offsets: Mapping[TopicPartition, int], deadline: Deadline | None = None) -> None:
        """Commit as consumers do: all earlier offsets are done. The group may be new.

        Raises GroupHasMembers, and ProxyError as `commit` does.
        """
        self._cluster.retry(lambda: self._send_commit(dict.fromkeys(offsets, ""), offsets), deadline)

    def _request_states(self) -> dict[TopicPartition, CommittedState]:
        connection = self._cluster.coordinator(self._group)
        version = connection.version(ApiKey.OFFSET_FETCH, OFFSET_FETCH_VERSION_MAX)
        request = messages.OffsetFetchRequest(group_id=self._group, topics=None)
        response = connection.send_request(ApiKey.OFFSET_FETCH, request, version)
        check_code(response.error_code, f"offsets of group {self._group}")
        states = {}
        for topic in response.topics:
            for entry in topic.partitions:
                partition = TopicPartition(topic.name, entry.partition_index)
                check_code(entry.error_code, f"offset of {partition} in group {self._group}")
                if entry.committed_offset >= 0:
                    states[partition] = _state(entry.committed_offset, entry.metadata or "")
        return states

    def _send_commit(self, texts: Mapping[TopicPartition, str], offsets: Mapping[TopicPartition, int]) -> None:
        request = messages.OffsetCommitRequest
        topics = defaultdict(list)
        for topic_partition, text in texts.items():
            entry = request.OffsetCommitRequestPartition(
                partition_index=topic_partition.partition,
                committed_offset=offsets[topic_partition],
                committed_metadata=text,
            )
            topics[topic_partition.topic].append(entry)
        listed = [request.OffsetCommitRequestTopic(name=name, partitions=entries) for name, entries in topics.items()]
        connection = self._cluster.coordinator(self._group)
        version = connection.version(ApiKey.OFFSET_COMMIT, OFFSET_COMMIT_VERSION_MAX)
        response = connection.send_request(ApiKey.OFFSET_COMMIT, request(group_id=self._group, topics=listed), version)
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS):
                    raise GroupHasMembers(
                        f"group {self._group} has members, and only they may commit for it: stop them and run this "
                        "again, which reads what is not committed; or let them read the holes"
                    )
                check_code(
                    partition.error_code, f"commit of {topic.name}-{partition.partition_index} for group {self._group}"
                )


def _state(offset: int, metadata: str) -> CommittedState:
    if commit_text_version(metadata) is not None:
        with suppress(CommitTextError):
            text = parse_commit_text(metadata)
            return CommittedState(offset, text.ranges, text.user_text)
    return CommittedState(offset, OffsetRanges(), metadata or None)
