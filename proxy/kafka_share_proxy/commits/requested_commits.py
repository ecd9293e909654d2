"""Partitions of a commit request: which commits are individual, which are refused, and to which topic each belongs.

Topics have names, or ids (OffsetCommit from v10, TxnOffsetCommit from v6 on).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from kafka_share_proxy.brokers.topic_leaders import on_many_topics, request_many_topics
from kafka_share_proxy.commits.model.partition_commits import PartitionCommit
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.forwarding.served.commit_responses import CommitEntry, CommitTopic
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.offsets.commit_text import (
    PREFIX,
    CommitText,
    CommitTextError,
    TooManyRanges,
    commit_text_version,
    parse_commit_text,
)
from kafka_share_proxy.offsets.ranges import OffsetRanges
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID, TopicPartition

CommitRequest: TypeAlias = "messages.OffsetCommitRequest | messages.TxnOffsetCommitRequest"

NUL = "\0"
SAMPLE = "0-0"
NO_RANGES = OffsetRanges()


class HasTopicName(Protocol):
    """The name is empty if the message uses ids."""

    name: str


@dataclass(slots=True, eq=False)
class RequestedCommit:
    """One partition of a request."""

    topic: CommitTopic
    entry: CommitEntry
    topic_partition: TopicPartition | None = None
    """None for an unknown topic id, which the broker judges, or for a duplicate partition."""
    topic_id: bytes = ZERO_UUID
    text: CommitText | None = None
    """None in a plain commit."""
    code: ErrorCode | None = None
    """None while undecided."""
    reason: str = ""

    _commit: PartitionCommit | None = None

    @property
    def commit(self) -> PartitionCommit:
        """Always the same object."""
        if self._commit is None:
            done = None if self.text is None else self.text.ranges
            self._commit = PartitionCommit(self.entry.committed_offset, done)
        return self._commit

    def refuse(self, code: ErrorCode, reason: str = "") -> None:
        self.code, self.reason = code, reason


async def requested_commits(call: Call[CommitRequest], services: CommitServices) -> list[RequestedCommit]:
    """Return all partitions of a request in its order, refused ones included. Raises UpstreamLost."""
    commits: list[RequestedCommit] = []
    for topic in call.message.topics or ():
        for entry in topic.partitions or ():
            requested = RequestedCommit(topic, entry)
            _read_text(requested, services.options.ranges_max)
            commits.append(requested)
            await call.work.step(len(entry.committed_metadata or ""))
    await load_topics(call, services, [requested.topic for requested in commits])
    _place(commits, services)
    _check_slicing(commits, services, call.message.group_id)
    return commits


def _read_text(requested: RequestedCommit, ranges_max: int) -> None:
    metadata = requested.entry.committed_metadata
    if metadata is None or commit_text_version(metadata) is None:
        return
    try:
        requested.text = parse_commit_text(metadata, ranges_max)
    except TooManyRanges as error:
        requested.refuse(ErrorCode.OFFSET_METADATA_TOO_LARGE, str(error))
    except CommitTextError as error:
        requested.refuse(ErrorCode.INVALID_REQUEST, str(error))
    else:
        if requested.entry.committed_offset < 0:
            reason = (
                f"offset {requested.entry.committed_offset} cannot be committed with ranges: commit the next to read"
            )
            requested.refuse(ErrorCode.INVALID_REQUEST, reason)


async def load_topics(call: Call[Message], services: CommitServices, topics: Iterable[HasTopicName]) -> None:
    """Request topics without recent metadata. Raises UpstreamLost."""
    topology, oldest_at = services.base.topology, services.timers.now() - services.options.topic_age_s
    names: dict[str, None] = {}
    ids: dict[bytes, None] = {}
    for topic in topics:
        topic_id = bytes(getattr(topic, "topic_id", ZERO_UUID))
        if topic_id == ZERO_UUID:
            if topology.topic_since(topic.name, oldest_at) is None:
                names[topic.name] = None
        elif topology.topic_by_id(topic_id) is None:
            ids[topic_id] = None
    if names or ids:
        responses = request_many_topics(call.connection, names.keys(), ids.keys())
        await on_many_topics(call.connection, services.base, responses, call.work)


def name_and_id(topic: HasTopicName, services: CommitServices) -> tuple[str | None, bytes]:
    topology = services.base.topology
    topic_id = bytes(getattr(topic, "topic_id", ZERO_UUID))
    if topic_id != ZERO_UUID:
        topic_of_id = topology.topic_by_id(topic_id)
        return (None if topic_of_id is None else topic_of_id.name), topic_id
    topic_of_name = topology.topic(topic.name)
    return topic.name, ZERO_UUID if topic_of_name is None else topic_of_name.topic_id


def _place(commits: Sequence[RequestedCommit], services: CommitServices) -> None:
    placed: set[TopicPartition] = set()
    for requested in commits:
        name, requested.topic_id = name_and_id(requested.topic, services)
        if name is None:
            continue
        partition = TopicPartition(name, requested.entry.partition_index)
        if partition in placed:
            requested.refuse(ErrorCode.INVALID_REQUEST, f"partition {partition.partition} of {name} is named twice")
        else:
            requested.topic_partition = partition
            placed.add(partition)


def _check_slicing(commits: Sequence[RequestedCommit], services: CommitServices, group_id: str) -> None:
    """See commits/README.md rule 13."""
    individual = [
        (requested, requested.topic_partition.topic)
        for requested in commits
        if requested.text and requested.topic_partition and requested.code is None
    ]
    group = services.held.groups.get(group_id)
    topics = {topic for _, topic in individual}
    if not topics or len(topics | (group.topics if group else set())) == 1:
        return
    base_of = services.base_of
    first = {base_of(topic): topic for topic in (group.topics_with_ranges() if group else ())}
    for requested, topic in individual:
        other = first.setdefault(base_of(topic), topic)
        if other != topic:
            reason = f"the group has ranges of {other}: commit ranges of one view of {base_of(topic)}, or of itself"
            requested.refuse(ErrorCode.INVALID_REQUEST, reason)


def kept_metadata(requested: RequestedCommit, ranges: OffsetRanges | str = "") -> str | None:
    """Return the metadata for the broker, with these ranges in it (commits/README.md rule 11)."""
    return metadata_with(requested.entry.committed_metadata, requested.text, str(ranges))


def metadata_with(metadata: str | None, text: CommitText | None, ranges: str) -> str | None:
    """`text`: content of the metadata of an individual commit. `ranges`: text of the ranges for the broker."""
    if text is None:
        if not ranges:
            return metadata
        text = CommitText(user_text=(metadata or "").rstrip(NUL) or None)
    if not (ranges or text.catch_up):
        return (text.user_text or "") + final_nul(metadata)
    rest = str(CommitText(NO_RANGES, text.catch_up, text.user_text))[len(PREFIX) :]
    return PREFIX + ranges + rest + final_nul(metadata)


def room_for_ranges(metadata: str | None, text: CommitText | None, characters: int) -> int:
    """Return the characters that the rest of the metadata leaves. Brokers count UTF-16 units, at most the bytes."""
    sample = metadata_with(metadata, text, SAMPLE) or ""
    return characters + len(SAMPLE) - (len(sample) if sample.isascii() else len(sample.encode()))


def final_nul(metadata: str | None) -> str:
    """See commits/README.md rule 11."""
    return NUL if metadata is not None and metadata.endswith(NUL) else ""
