"""Offsets of a batch of a share group, in the form that Spark stores in a checkpoint (pipeline/README.md rule 44).

Example: `{"v": 1, "seq": 3, "tokens": [["orders-0", 120, 139]], "ids": {"orders": "..."}}` has the number of the batch,
its first and last offsets, and the ids of its topics. After a topic was created again, other records have these
offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafka_share_proxy.offsets.ranges import OffsetSpan, ascending
from kafka_share_proxy.pipeline.source.stream_offsets import BadStreamOffset
from kafka_share_proxy.wire.values import TopicPartition

VERSION = 1

Tokens = list[tuple[TopicPartition, OffsetSpan]]


class ShareOffset(NamedTuple):
    """A batch of a share group."""

    seq: int
    """Number of the batch in this checkpoint. 0 is the position before the first batch."""
    tokens: Tokens
    """Acquired offsets, ascending. Adjacent ranges are merged."""
    ids: Mapping[str, bytes]


START = ShareOffset(0, [], {})


def merge_tokens(tokens: Iterable[tuple[TopicPartition, OffsetSpan]]) -> Tokens:
    by_partition: dict[TopicPartition, list[OffsetSpan]] = {}
    for partition, span in tokens:
        by_partition.setdefault(partition, []).append(span)
    return [(partition, span) for partition, spans in sorted(by_partition.items()) for span in ascending(spans)]


def encode_share_offset(offset: ShareOffset) -> dict[str, Any]:
    return {
        "v": VERSION,
        "seq": offset.seq,
        "tokens": [[str(partition), span.start, span.last] for partition, span in offset.tokens],
        "ids": {topic: topic_id.hex() for topic, topic_id in sorted(offset.ids.items())},
    }


def decode_share_offset(stored: Mapping[str, Any]) -> ShareOffset:
    """Return the offset that `encode_share_offset` stored. Raises BadStreamOffset."""
    if stored.get("v") != VERSION:
        raise BadStreamOffset(f"the checkpoint holds offsets of version {stored.get('v')!r}, only {VERSION} is known")
    try:
        tokens = [(_partition(name), OffsetSpan(first, last + 1)) for name, first, last in stored["tokens"]]
        ids = {str(topic): bytes.fromhex(topic_id) for topic, topic_id in stored["ids"].items()}
        if not all(partition.topic in ids and 0 <= span.start < span.end for partition, span in tokens):
            raise ValueError("a token is none")
        return ShareOffset(int(stored["seq"]), tokens, ids)
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise BadStreamOffset(f"the checkpoint holds no offsets of a share group: {error!r}") from None


def _partition(name: str) -> TopicPartition:
    topic, _, partition = name.rpartition("-")
    return TopicPartition(topic, int(partition))
