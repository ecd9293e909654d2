"""The tagged field `KeyFilter` of a fetched partition, and its confirmation (views/README.md rules 46 and 47)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from functools import partial
from hashlib import sha256

from kafka_share_proxy.loop.interfaces import Workers
from kafka_share_proxy.views.fetch.view_chunks import Division
from kafka_share_proxy.views.model.slots import KeyFilterCut
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.errors import ProxyError, RemoteProtocolError
from kafka_share_proxy.wire.key_filter import LAYOUT_VERSION, MURMUR2, TAG, NullKeys

TAG_BYTES = b"\xed\xd6\x01"
"""`TAG` as a varint."""
TAGS_SINCE = 12
"""First version of Fetch with tagged fields."""

REQUEST_BYTES_MAX = 2 << 20
"""Maximum bytes of all filters of one request (views/README.md rule 47)."""
INLINE_BYTES = 4 << 10
"""Bytes above which a filter is parsed by a worker thread."""
KEPT_BYTES = 16 << 20
"""Maximum memory of the cache of parsed filters in bytes."""
RANGE_FACTOR, KEY_FACTOR = 30, 15
"""Bytes in memory for each byte of a cut's packed ranges and keys."""


class BadFilter(ProxyError):
    """Raised for a filter that cannot be applied. The text has the reason."""


def content_in(entry: messages.FetchRequest.FetchPartition) -> bytes | None:
    """Return the content of the tagged field, or None."""
    return next((bytes(content) for tag, content in entry.unknown_tags if tag == TAG), None)


class KeyFilterCache:
    """Cache of parsed filters, because clients send the same filter with every Fetch."""

    def __init__(self, limit_bytes: int = KEPT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._parsed: OrderedDict[bytes, Division] = OrderedDict()
        self._bytes = 0

    async def read(self, content: bytes, workers: Workers, owner: Hashable) -> Division:
        """Return the division of a filter. A large one is parsed in a thread, on the account of `owner`.

        Raises BadFilter, and WorkersBusy if too many jobs wait.
        """
        digest = sha256(content).digest()
        cached = self._parsed.get(digest)
        if cached is not None:
            self._parsed.move_to_end(digest)
            return cached
        if len(content) <= INLINE_BYTES:
            division = read_filter(content, digest)
        else:
            division = await workers.run(partial(read_filter, content, digest), owner)
        if digest not in self._parsed:
            self._parsed[digest] = division
            self._bytes += _memory(division)
        while self._bytes > self._limit_bytes and self._parsed:
            self._bytes -= _memory(self._parsed.popitem(last=False)[1])
        return division


def _memory(division: Division) -> int:
    packed = division.cut.packed
    return len(packed.starts) * RANGE_FACTOR + len(packed.key_index) * KEY_FACTOR + len(packed.key_bytes) + INLINE_BYTES


def read_filter(content: bytes, digest: bytes) -> Division:
    """Parse a filter with this digest of its content. Raises BadFilter."""
    try:
        key_filter = registry.codec_of(messages.KeyFilter, 0).decode(content)
    except RemoteProtocolError as error:
        raise BadFilter(f"KeyFilter cannot be read: {error}") from error
    if key_filter.filter_version != LAYOUT_VERSION or key_filter.hash != MURMUR2:
        raise BadFilter(f"KeyFilter version {key_filter.filter_version} with hash {key_filter.hash} is not known here")
    if not key_filter.ranges and not key_filter.keys:
        raise BadFilter("KeyFilter names neither ranges nor keys")
    try:
        cut = KeyFilterCut(
            ranges=tuple((part.first, part.last) for part in key_filter.ranges),
            keys=tuple(bytes(key) for key in key_filter.keys),
            null_keys=NullKeys(key_filter.null_keys),
        )
    except ValueError as error:
        raise BadFilter(str(error)) from error
    return Division(("filter", digest), cut)


def applied_tag(scanned_to: int) -> tuple[int, bytes]:
    """Return the tagged field that confirms a filter up to this offset."""
    return TAG, registry.codec_of(messages.KeyFilterApplied, 0).encode(messages.KeyFilterApplied(scanned_to=scanned_to))
