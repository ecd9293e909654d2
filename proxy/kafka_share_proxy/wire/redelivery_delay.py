"""Tagged field `RedeliveryDelay` of an acknowledgement batch.

Layout: schemas/internal/RedeliveryDelay.json; rule: sharegroups/README.md 83.
"""

from __future__ import annotations

from kafka_share_proxy.wire.codec.primitives import Tags
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.errors import RemoteProtocolError

TAG = 27502
"""Tag in AcknowledgementBatch of ShareFetch and ShareAcknowledge requests, and in PartitionData of their responses."""
APPLIED: Tags = ((TAG, b""),)
"""Tags of a partition in the response: the delays were applied."""
DELAY_MS_MAX = 900_000
"""15 minutes."""


def tags_of(delay_ms: int) -> Tags:
    """Return the tagged fields of an acknowledgement batch with this delay."""
    delay = messages.RedeliveryDelay(delay_ms=delay_ms)
    return ((TAG, registry.codec_of(messages.RedeliveryDelay, 0).encode(delay)),)


def delay_ms_in(tags: Tags) -> int | None:
    """Return the delay of an acknowledgement batch. None if it has none. -1 if it is invalid."""
    for tag, content in tags:
        if tag == TAG:
            try:
                delay_ms = registry.codec_of(messages.RedeliveryDelay, 0).decode(content).delay_ms
            except RemoteProtocolError:
                return -1
            return delay_ms if 0 <= delay_ms <= DELAY_MS_MAX else -1
    return None


def is_applied(tags: Tags) -> bool:
    """Return True if the delays of a partition were applied."""
    return any(tag == TAG for tag, _ in tags)
