"""The tagged field `KeyFilter` of a fetched partition, and the echo that says it was applied.

A client that gets no echo has met a bare broker, or a version of Fetch without tagged fields, and filters itself
(views/README.md rule 46).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from functools import partial
from hashlib import sha256

from proxy.loop.interfaces import Workers
from proxy.views.fetch.view_chunks import Division
from proxy.views.model.slots import KeyFilterCut
from proxy.wire import messages, registry
from proxy.wire.errors import ProxyError, RemoteProtocolError
from proxy.wire.key_filter import LAYOUT_VERSION, MURMUR2, TAG, NullKeys

TAG_BYTES = b"\xed\xd6\x01"
"""The tag as a varint."""
TAGS_SINCE = 12
"""Fetch has tagged fields from here on."""

REQUEST_BYTES_MAX = 2 << 20
"""Bytes of all filters of one request."""
INLINE_BYTES = 4 << 10
"""A longer one is read by a worker thread."""
KEPT_BYTES = 16 << 20
"""Memory of filters that were read and are kept for the next Fetch."""
RANGE_FACTOR, KEY_FACTOR = 30, 15
"""Memory that a cut takes for each byte of its packed ranges and keys: objects of Python beside them."""


class BadFilter(ProxyError):
    """The field asks for nothing that can be done; the text says why."""


def content_of(entry: messages.FetchRequest.FetchPartition) -> bytes | None:
    """The field of the partition of a request, not read yet; None: it has none."""
    return next((bytes(content) for tag, content in entry.unknown_tags if tag == TAG), None)


class Filters:
    """Filters that were read lately: clients send the same one with every Fetch."""

    def __init__(self, limit_bytes: int = KEPT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._kept: OrderedDict[bytes, Division] = OrderedDict()
        self._bytes = 0

    async def read(self, content: bytes, workers: Workers, owner: Hashable) -> Division:
        """What the field asks for; a long one is read by a worker thread.

        Raises:
            BadFilter: see `read_filter`. WorkersBusy: too much waits for a thread.
        """
        digest = sha256(content).digest()
        known = self._kept.get(digest)
        if known is not None:
            self._kept.move_to_end(digest)
            return known
        if len(content) <= INLINE_BYTES:
            found = read_filter(content, digest)
        else:
            found = await workers.run(partial(read_filter, content, digest), owner)
        if digest not in self._kept:
            self._kept[digest] = found
            self._bytes += _memory(found)
        while self._bytes > self._limit_bytes and self._kept:
            self._bytes -= _memory(self._kept.popitem(last=False)[1])
        return found


def _memory(division: Division) -> int:
    packed = division.cut.packed
    return len(packed.starts) * RANGE_FACTOR + len(packed.key_index) * KEY_FACTOR + len(packed.key_bytes) + INLINE_BYTES


def read_filter(content: bytes, digest: bytes) -> Division:
    """What a KeyFilter of this digest asks for.

    Raises:
        BadFilter: an unknown layout or hash, no ranges and no keys, too many, or a range that is none.
    """
    try:
        asked = registry.codec_of(messages.KeyFilter, 0).decode(content)
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
    return Division(("filter", digest), cut)


def applied(scanned_to: int) -> tuple[int, bytes]:
    """The echo: the tag and its content."""
    return TAG, registry.codec_of(messages.KeyFilterApplied, 0).encode(messages.KeyFilterApplied(scanned_to=scanned_to))
