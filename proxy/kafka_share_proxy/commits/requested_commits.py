"""Partitions of a commit request: which commits are individual, which are refused, and to which topic each belongs.

OffsetCommit and TxnOffsetCommit have the same structure. Topics have names, or ids (OffsetCommit from v10,
TxnOffsetCommit from v6 on). Ranges are stored by name and id.
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
NO_RANGES = OffsetRanges()


class HasTopicName(Protocol):
    """A topic in a message. The name is empty if the message uses ids. Not all classes have a `topic_id`."""

    name: str


@dataclass(slots=True, eq=False)
class RequestedCommit:
    """One partition of a request."""

    topic: CommitTopic
    """The topic entry of the request that contains the partition."""
    entry: CommitEntry
    """The partition entry of the request."""
    place: TopicPartition | None = None
    """None for an unknown topic id, which the broker judges, or for a partition that was named before."""
    topic_id: bytes = ZERO_UUID
    text: CommitText | None = None
    """The text of an individual commit. None in a plain commit."""
    code: ErrorCode | None = None
    """Error code for the response. None while undecided."""
    reason: str = ""
    """Reason of a refusal by the proxy, for the log."""

    _commit: PartitionCommit | None = None

    @property
    def commit(self) -> PartitionCommit:
        """The offset and ranges to commit. Created on first access, then always the same object."""
        if self._commit is None:
            done = None if self.text is None else self.text.ranges
            self._commit = PartitionCommit(self.entry.committed_offset, done)
        return self._commit

    def refuse(self, code: ErrorCode, reason: str = "") -> None:
        """Set the error code, so that the partition is not forwarded."""
        self.code, self.reason = code, reason


async def requested_commits(call: Call[CommitRequest], services: CommitServices) -> list[RequestedCommit]:
    """Return all partitions of a request in its order, with those refused that cannot be committed. Raises
    UpstreamLost."""
    found: list[RequestedCommit] = []
    for topic in call.message.topics or ():
        for entry in topic.partitions or ():
            asked = RequestedCommit(topic, entry)
            _read_text(asked, services.options.ranges_max)
            found.append(asked)
            await call.work.step(len(entry.committed_metadata or ""))
    await load_topics(call, services, [asked.topic for asked in found])
    _place(found, services)
    _check_slicing(found, services, call.message.group_id)
    return found


def _read_text(asked: RequestedCommit, ranges_max: int) -> None:
    metadata = asked.entry.committed_metadata
    if metadata is None or commit_text_version(metadata) is None:
        return
    try:
        asked.text = parse_commit_text(metadata, ranges_max)
    except TooManyRanges as error:
        asked.refuse(ErrorCode.OFFSET_METADATA_TOO_LARGE, str(error))
    except CommitTextError as error:
        asked.refuse(ErrorCode.INVALID_REQUEST, str(error))
    else:
        if asked.entry.committed_offset < 0:
            reason = f"offset {asked.entry.committed_offset} cannot be committed with ranges: commit the next to read"
            asked.refuse(ErrorCode.INVALID_REQUEST, reason)


async def load_topics(call: Call[Message], services: CommitServices, topics: Iterable[HasTopicName]) -> None:
    """Request topics without recent metadata over the client's connection. Raises UpstreamLost."""
    view, since = services.services.topology, services.timers.now() - services.options.topic_age_s
    names: dict[str, None] = {}
    ids: dict[bytes, None] = {}
    for topic in topics:
        topic_id = bytes(getattr(topic, "topic_id", ZERO_UUID))
        if topic_id == ZERO_UUID:
            if view.topic_since(topic.name, since) is None:
                names[topic.name] = None
        elif view.topic_by_id(topic_id) is None:
            ids[topic_id] = None
    if names or ids:
        responses = request_many_topics(call.connection, names.keys(), ids.keys())
        await on_many_topics(call.connection, services.services, responses, call.work)


def named(topic: HasTopicName, services: CommitServices) -> tuple[str | None, bytes]:
    """Return the name and the id of a topic in a message, as far as they are known."""
    view = services.services.topology
    topic_id = bytes(getattr(topic, "topic_id", ZERO_UUID))
    if topic_id != ZERO_UUID:
        known = view.topic_by_id(topic_id)
        return (None if known is None else known.name), topic_id
    by_name = view.topic(topic.name)
    return topic.name, ZERO_UUID if by_name is None else by_name.topic_id


def _place(found: Sequence[RequestedCommit], services: CommitServices) -> None:
    seen: set[TopicPartition] = set()
    for asked in found:
        name, asked.topic_id = named(asked.topic, services)
        if name is None:
            continue
        place = TopicPartition(name, asked.entry.partition_index)
        if place in seen:
            asked.refuse(ErrorCode.INVALID_REQUEST, f"partition {place.partition} of {name} is named twice")
        else:
            asked.place = place
            seen.add(place)


def _check_slicing(found: Sequence[RequestedCommit], services: CommitServices, group_id: str) -> None:
    """Refuse ranges of a second slicing of the same topic: ranges of a view do not apply to it (commits/README.md rule
    13)."""
    individual = [(asked, asked.place.topic) for asked in found if asked.text and asked.place and asked.code is None]
    group = services.held.groups.get(group_id)
    topics = {topic for _, topic in individual}
    if not topics or len(topics | (group.topics if group else set())) == 1:
        return
    base_of = services.base_of
    first = {base_of(topic): topic for topic in (group.topics_with_ranges() if group else ())}
    for asked, topic in individual:
        other = first.setdefault(base_of(topic), topic)
        if other != topic:
            reason = f"the group has ranges of {other}: commit ranges of one view of {base_of(topic)}, or of itself"
            asked.refuse(ErrorCode.INVALID_REQUEST, reason)


def kept_metadata(asked: RequestedCommit, ranges: OffsetRanges = NO_RANGES) -> str | None:
    """Return the metadata that the broker keeps of a commit, with these ranges in it (commits/README.md rule 11)."""
    metadata = asked.entry.committed_metadata
    text = asked.text
    if text is None:
        return metadata
    kept = CommitText(ranges, text.catch_up, text.user_text)
    return (str(kept) if ranges or text.catch_up else text.user_text or "") + final_nul(metadata)


def final_nul(metadata: str | None) -> str:
    """Return the NUL at the end of metadata from confluent-kafka-python, else an empty string.

    That client reads beyond the end of metadata without a NUL (2.16, measured).
    """
    return NUL if metadata is not None and metadata.endswith(NUL) else ""
