"""Responses to OffsetCommit and TxnOffsetCommit that are made here: a code for each partition of the request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeAlias, TypeVar

from proxy.forwarding.interfaces import Call
from proxy.wire import messages, registry
from proxy.wire.errors import ErrorCode
from proxy.wire.messages import Message, RequestMessage

R = TypeVar("R", bound=Message)
"""The class of the response."""

CommitTopic: TypeAlias = (
    "messages.OffsetCommitRequest.OffsetCommitRequestTopic"
    " | messages.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic"
)
CommitEntry: TypeAlias = (
    "messages.OffsetCommitRequest.OffsetCommitRequestPartition"
    " | messages.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition"
)
"""One partition of a request."""


def refused(call: Call[RequestMessage[R]], topics: Iterable[CommitTopic], code: ErrorCode) -> R:
    """The response that refuses every partition; `topics` are those of the request."""
    return commit_response(call, topics, lambda _: code)


def commit_response(
    call: Call[RequestMessage[R]],
    topics: Iterable[CommitTopic],
    code_of: Callable[[CommitEntry], int],
    throttle_time_ms: int = 0,
) -> R:
    """For each partition of the request a code, in its order."""
    response, topic_class, partition_class = _classes(call.key)
    answered = [
        topic_class(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                partition_class(partition_index=entry.partition_index, error_code=code_of(entry))
                for entry in topic.partitions or ()
            ],
        )
        for topic in topics or ()
    ]
    message: R = response(topics=answered, throttle_time_ms=throttle_time_ms)
    return message


@cache
def _classes(key: int) -> tuple[Any, Any, Any]:
    """The classes of a response, of its topics and of their partitions."""
    name = registry.API_KEYS[key]
    response = registry.message(f"{name}Response")
    return response, getattr(response, f"{name}ResponseTopic"), getattr(response, f"{name}ResponsePartition")
