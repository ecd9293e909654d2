"""The tagged field `KeyFilter` of a fetched partition, and the echo that says it was applied (requirements.md 2.3).

A client that gets no echo has met a bare broker, or a version of Fetch without tagged fields, and filters itself.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from proxy.apis.view_cache import Division
from proxy.errors import ProxyError, RemoteProtocolError
from proxy.views.cuts import KeyFilterCut, NullKeys
from proxy.wire import registry

TAG = 27501
"""Of FetchRequest.FetchPartition and of FetchResponse.PartitionData; Kafka allots its own from 0 up."""
TAG_BYTES = b"\xed\xd6\x01"
"""The tag as a varint."""
TAGS_SINCE = 12
"""Fetch has tagged fields from here on."""

LAYOUT_VERSION, MURMUR2 = 1, 1


class BadFilter(ProxyError):
    """The field asks for nothing that can be done; the text says why."""


def read_filter(entry: Any) -> Division | None:
    """What the partition of a request is filtered by; None: it has no such field.

    Raises:
        BadFilter: an unknown layout or hash, no ranges and no keys, or a range that is none.
    """
    content = next((content for tag, content in entry.unknown_tags if tag == TAG), None)
    if content is None:
        return None
    try:
        asked = registry.codec("KeyFilter", 0).decode(content)
    except RemoteProtocolError as error:
        raise BadFilter(f"KeyFilter cannot be read: {error}") from error
    if asked.filter_version != LAYOUT_VERSION or asked.hash != MURMUR2:
        raise BadFilter(f"KeyFilter version {asked.filter_version} with hash {asked.hash} is not known here")
    if not asked.ranges and not asked.keys:
        raise BadFilter("KeyFilter names neither ranges nor keys")
    try:
        cut = KeyFilterCut(
            ranges=tuple((part.first, part.last) for part in asked.ranges),
            keys=tuple(bytes(key) for key in asked.keys),
            null_keys=NullKeys(asked.null_keys),
        )
    except ValueError as error:
        raise BadFilter(str(error)) from error
    return Division(("filter", sha256(content).digest()), cut)


def applied(scanned_to: int) -> tuple[int, bytes]:
    """The echo: the tag and its content."""
    return TAG, registry.codec("KeyFilterApplied", 0).encode(
        registry.message("KeyFilterApplied")(scanned_to=scanned_to)
    )
