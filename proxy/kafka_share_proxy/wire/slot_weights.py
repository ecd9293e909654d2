"""Tagged field `SlotWeights` of a topic in a Metadata response.

Layout: schemas/internal/SlotWeights.json; rules: views/README.md 53 and 54.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_share_proxy.wire.codec.primitives import Tags
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.errors import RemoteProtocolError

TAG = 27502
"""Tag in MetadataRequest, with an empty field, and in MetadataResponse.MetadataResponseTopic."""

Tag = tuple[int, bytes]
REQUESTED: Tag = (TAG, b"")
"""Tagged field of a request."""


def is_requested(unknown_tags: Tags) -> bool:
    """Return True if a Metadata request has the tagged field."""
    return any(tag == TAG for tag, _ in unknown_tags)


def tag_of(weights: Sequence[float]) -> Tag:
    """Return the tagged field with these weights."""
    message = messages.SlotWeights
    return TAG, registry.codec_of(message, 0).encode(message(weights=list(weights)))


def weights_in(unknown_tags: Tags) -> tuple[float, ...]:
    """Return the weights of the slots. Empty if there are none, or they cannot be decoded: a client then counts
    partitions.
    """
    for tag, content in unknown_tags:
        if tag == TAG:
            try:
                return tuple(registry.codec_of(messages.SlotWeights, 0).decode(content).weights)
            except RemoteProtocolError:
                return ()
    return ()
