"""Common parts of OffsetCommit and TxnOffsetCommit: the request to the broker and the response."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

from kafka_share_proxy.commits.requested_commits import RequestedCommit
from kafka_share_proxy.forwarding.served.commit_responses import CommitEntry, CommitTopic, commit_response
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.message_classes import copied
from kafka_share_proxy.wire.definitions.messages import Message, RequestMessage
from kafka_share_proxy.wire.errors import ErrorCode

M = TypeVar("M", bound=Message)
Q = TypeVar("Q", "messages.OffsetCommitRequest", "messages.TxnOffsetCommitRequest")
R = TypeVar("R", bound=Message)

_Response: TypeAlias = "messages.OffsetCommitResponse | messages.TxnOffsetCommitResponse"
_TopicResponse: TypeAlias = (
    "messages.OffsetCommitResponse.OffsetCommitResponseTopic"
    " | messages.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic"
)

COMMIT_HOLD_S = 5.0
"""Maximum seconds that a commit waits for the state: librdkafka repeats it twice only, and sessions last 10 s or more.
"""
DEFINITE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""Codes of a broker that certainly committed nothing (GroupCoordinatorService, OffsetMetadataManager)."""


def copy_with(message: M, **fields: object) -> M:
    """Copy a message with other values of these fields, and with its unknown tags."""
    copy = copied(message, **fields)
    copy.unknown_tags = message.unknown_tags
    return copy


def request_of(call: Call[Q], entries: Iterable[tuple[RequestedCommit, CommitEntry]]) -> Q:
    """Return the client's request with these entries, grouped by topic in its order."""
    topics: dict[int, tuple[CommitTopic, list[CommitEntry]]] = {}
    for requested, entry in entries:
        topics.setdefault(id(requested.topic), (requested.topic, []))[1].append(entry)
    return copy_with(
        call.message,
        topics=[copy_with(topic, partitions=entries_of_topic) for topic, entries_of_topic in topics.values()],
    )


def set_codes(commits: Sequence[RequestedCommit], response: _Response) -> None:
    """Store the code of each commit in the broker's response. A missing one is UNKNOWN_SERVER_ERROR."""
    codes = codes_of(response)
    for requested in commits:
        code = codes.get((name_or_id(requested.topic), requested.entry.partition_index), ErrorCode.UNKNOWN_SERVER_ERROR)
        requested.code = ErrorCode.of(code)


def codes_of(response: _Response) -> dict[tuple[bytes | str, int], int]:
    """Return error codes by name or id of the topic, and partition."""
    return {
        (name_or_id(topic), entry.partition_index): entry.error_code
        for topic in response.topics or ()
        for entry in topic.partitions or ()
    }


def name_or_id(topic: CommitTopic | _TopicResponse) -> bytes | str:
    topic_id = bytes(topic.topic_id)
    return topic_id if any(topic_id) else topic.name


def response_of(
    call: Call[RequestMessage[R]],
    topics: Iterable[CommitTopic],
    commits: Sequence[RequestedCommit],
    throttle_time_ms: int,
) -> R:
    codes = {id(requested.entry): requested.code for requested in commits}
    return commit_response(call, topics, lambda entry: codes[id(entry)] or ErrorCode.NONE, throttle_time_ms)
