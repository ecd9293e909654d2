"""Local responses to OffsetCommit and TxnOffsetCommit: an error code for each partition of the request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeAlias, TypeVar

from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.messages import Message, RequestMessage
from kafka_share_proxy.wire.errors import ErrorCode

R = TypeVar("R", bound=Message)

CommitTopic: TypeAlias = (
    "messages.OffsetCommitRequest.OffsetCommitRequestTopic"
    " | messages.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic"
)
CommitEntry: TypeAlias = (
    "messages.OffsetCommitRequest.OffsetCommitRequestPartition"
    " | messages.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition"
)


def refused(call: Call[RequestMessage[R]], topics: Iterable[CommitTopic], code: ErrorCode) -> R:
    """Return a response with one error code for all partitions of `topics`."""
    return commit_response(call, topics, lambda _: code)


def commit_response(
    call: Call[RequestMessage[R]],
    topics: Iterable[CommitTopic],
    code_of: Callable[[CommitEntry], int],
    throttle_time_ms: int = 0,
) -> R:
    """Return a response with an error code for each partition, in the order of the request."""
    response, topic_class, partition_class = _classes(call.key)
    responded = [
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
    message: R = response(topics=responded, throttle_time_ms=throttle_time_ms)
    return message


@cache
def _classes(key: int) -> tuple[Any, Any, Any]:
    name = registry.API_KEYS[key]
    response = registry.message(f"{name}Response")
    return response, getattr(response, f"{name}ResponseTopic"), getattr(response, f"{name}ResponsePartition")
