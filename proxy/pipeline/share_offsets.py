"""What a batch of a share group holds: acquired offsets, as a checkpoint keeps them (pipeline/README.md rule 44).

`{"v": 1, "seq": 3, "tokens": [["orders-0", 120, 139]], "ids": {"orders": "..."}}`: number of the batch, its first and
last offsets, and the ids of its topics, for a topic that was made anew has other records at these offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from proxy.offsets.ranges import OffsetSpan, ascending
from proxy.pipeline.stream_offsets import BadStreamOffset
from proxy.wire.values import TopicPartition

VERSION = 1

Tokens = list[tuple[TopicPartition, OffsetSpan]]


class ShareOffset(NamedTuple):
    """One batch."""

    seq: int
    """Counts batches of the checkpoint; 0 is before the first."""
    tokens: Tokens
    """AcquiredOffsets offsets, ascending, without neighbours."""
    ids: Mapping[str, bytes]
    """Topic -> its id."""


START = ShareOffset(0, [], {})


def merged(tokens: Iterable[tuple[TopicPartition, OffsetSpan]]) -> Tokens:
    """The same offsets, each once, as few ranges in order."""
    by_place: dict[TopicPartition, list[OffsetSpan]] = {}
    for place, span in tokens:
        by_place.setdefault(place, []).append(span)
    return [(place, span) for place, spans in sorted(by_place.items()) for span in ascending(spans)]


def written_share(offset: ShareOffset) -> dict[str, Any]:
    """As Spark stores it."""
    return {
        "v": VERSION,
        "seq": offset.seq,
        "tokens": [[str(place), span.start, span.last] for place, span in offset.tokens],
        "ids": {topic: topic_id.hex() for topic, topic_id in sorted(offset.ids.items())},
    }


def read_written_share(stored: Mapping[str, Any]) -> ShareOffset:
    """What `written_share` made. Raises BadStreamOffset."""
    if stored.get("v") != VERSION:
        raise BadStreamOffset(f"the checkpoint holds offsets of version {stored.get('v')!r}, only {VERSION} is known")
    try:
        tokens = [(_place(name), OffsetSpan(first, last + 1)) for name, first, last in stored["tokens"]]
        ids = {str(topic): bytes.fromhex(topic_id) for topic, topic_id in stored["ids"].items()}
        if not all(place.topic in ids and 0 <= span.start < span.end for place, span in tokens):
            raise ValueError("a token is none")
        return ShareOffset(int(stored["seq"]), tokens, ids)
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise BadStreamOffset(f"the checkpoint holds no offsets of a share group: {error!r}") from None


def _place(name: str) -> TopicPartition:
    topic, _, partition = name.rpartition("-")
    return TopicPartition(topic, int(partition))
