"""ShareFetch responses of brokers, forwarded while they arrive (forwarding/README.md rule 26). No I/O.

NodeEndpoints (KIP-951) come after the records, when the size of the response has been sent. They are rewritten in
place: the bytes that they no longer need become a tagged field, which clients skip (KIP-482).
"""

from __future__ import annotations

from collections.abc import Callable

from kafka_share_proxy.forwarding.dispatch.routes import Context, Rewrite
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.forwarding.rewriting.address_rewriting import drop_node_endpoints
from kafka_share_proxy.wire.codec.compiler import Codec
from kafka_share_proxy.wire.codec.frame_sizes import RESPONSE_HEAD, SIZE
from kafka_share_proxy.wire.codec.primitives import read_uvarint, skip_tags, uvarint
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.specs import FIXED_SIZES
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.values import ZERO_UUID

ELEMENT_BYTES_MAX = 64 << 10
"""Maximum bytes of an element that is kept until its last byte arrives. NodeEndpoints are one, records are none."""

PADDING_TAGS = (12_007, 27_504)
"""Tags of the field that replaces bytes, of two and of three bytes: one of them always fits."""

_INT16, _INT32 = FIXED_SIZES["int16"], FIXED_SIZES["int32"]
_ACQUIRED_FIELDS = 2 * FIXED_SIZES["int64"] + _INT16
_ACQUIRED = _ACQUIRED_FIELDS + 1
"""Bytes of an entry of AcquiredRecords without tags."""
_MESSAGE = _INT32 + _INT16
_ACKNOWLEDGE_MESSAGE = _MESSAGE + 1 + _INT16
_PARTITION_HEAD = _ACKNOWLEDGE_MESSAGE + 1 + 2 * _INT32 + 1
"""Bytes of a partition before its records, with neither messages nor tags, and the positions of the messages in it."""
_NO_TAGS = b"\0"
_NO_ENDPOINTS_NO_TAGS = b"\1" + _NO_TAGS


class ShareFetchRewriter:
    """Rewriter of ShareFetch responses of one version: whole ones, and those that arrive in pieces."""

    __slots__ = ("_book", "_rewrite", "_version")

    def __init__(self, rewrite: Rewrite, version: int, book: AddressBook) -> None:
        """`rewrite`: rewriter of whole responses."""
        self._rewrite = rewrite
        self._version = version
        self._book = book

    def __call__(self, frame: memoryview, context: Context) -> bytes | None:
        return self._rewrite(frame, context)

    def begin(self, size: int) -> ShareFetchStream:
        """Return the stream of a response of `size` bytes, without those of the size."""
        return ShareFetchStream(size, self._ending)

    def _ending(self, ending: bytes) -> bytes:
        """Return the end of a response, from NodeEndpoints on, rewritten in as many bytes. Raises RemoteProtocolError.

        NodeEndpoints are dropped if they do not fit.
        """
        codec = registry.codec_of(messages.ShareFetchResponse, self._version)
        head = codec.encode(messages.ShareFetchResponse())[: -len(_NO_ENDPOINTS_NO_TAGS)]
        response = codec.decode(head + ending)
        drop_node_endpoints(response, self._book)
        rewritten = padded(codec, response, len(head + ending))
        if rewritten is None:
            response.node_endpoints = []
            rewritten = padded(codec, response, len(head + ending))
        if rewritten is None:
            raise RemoteProtocolError(f"NodeEndpoints of {len(ending)} bytes")  # each has at least 11
        return rewritten[len(head) :]


class ShareFetchStream:
    """A ShareFetch response that arrives. Knows where its next element begins, and keeps no bytes."""

    __slots__ = ("_acquired", "_element", "_is_over", "_partitions", "_rewrite", "_topics", "remaining")

    def __init__(self, size: int, rewrite: Callable[[bytes], bytes]) -> None:
        """`rewrite`: rewrites the end of the response, from NodeEndpoints on, in as many bytes."""
        self.remaining = size + SIZE.size
        """Bytes of the response that `advance` has not passed."""
        self._rewrite = rewrite
        self._topics = self._partitions = self._acquired = 0
        """Elements of the present arrays that are still to come."""
        self._element: Callable[[ShareFetchStream, memoryview, int], int] = ShareFetchStream._head
        self._is_over = False

    def advance(self, data: memoryview) -> int:
        """Return how many bytes can be forwarded from the start of `data` on, where the last call stopped.

        They may be more than `data` has. 0: more bytes are needed first. NodeEndpoints are changed in place.
        Raises RemoteProtocolError.
        """
        data = data[: self.remaining]
        at = 0
        try:
            while at < len(data):
                at = self._element(self, data, at)
        except IndexError:  # an element is incomplete
            if len(data) - at > ELEMENT_BYTES_MAX:
                text = f"an element of a ShareFetch response has more than {ELEMENT_BYTES_MAX} bytes"
                raise RemoteProtocolError(text) from None
        if max(at, len(data)) >= self.remaining and not self._is_over:
            raise RemoteProtocolError("a ShareFetch response ends within an element")
        self.remaining -= at
        return at

    # Elements: each method returns the position after its element. Raises IndexError if the element is incomplete.

    def _head(self, data: memoryview, at: int) -> int:
        at = self._after_tags(data, at + RESPONSE_HEAD.size)
        at = _after_string(data, at + _MESSAGE)
        topics, at = _count(data, at + _INT32)
        self._topics = topics
        self._element = ShareFetchStream._topic if topics else ShareFetchStream._node_endpoints
        return at

    def _topic(self, data: memoryview, at: int) -> int:
        partitions, at = _count(data, at + len(ZERO_UUID))
        self._topics -= 1
        self._partitions = partitions
        self._element = ShareFetchStream._partition if partitions else ShareFetchStream._topic_end
        return at

    def _partition(self, data: memoryview, at: int) -> int:
        """Return the position after the records, which may be beyond the data."""
        head = data[at : at + _PARTITION_HEAD]
        if len(head) == _PARTITION_HEAD and not (head[_MESSAGE] or head[_ACKNOWLEDGE_MESSAGE] or head[-1]):
            at += _PARTITION_HEAD
        else:
            at = _after_string(data, at + _MESSAGE)
            at = _after_string(data, at + _INT16)
            at = self._after_tags(data, at + 2 * _INT32)
        records_bytes, at = _count(data, at)
        self._partitions -= 1
        self._element = ShareFetchStream._acquired_count
        return at + records_bytes

    def _acquired_count(self, data: memoryview, at: int) -> int:
        acquired, at = _count(data, at)
        self._acquired = acquired
        self._element = ShareFetchStream._acquired_records if acquired else ShareFetchStream._partition_end
        return at

    def _acquired_records(self, data: memoryview, at: int) -> int:
        """Pass the next entries without tags together, or one with tags."""
        received = min(self._acquired, (len(data) - at) // _ACQUIRED)
        tags = bytes(data[at + _ACQUIRED_FIELDS : at + received * _ACQUIRED : _ACQUIRED])
        count = len(tags) - len(tags.lstrip(_NO_TAGS))
        after = at + count * _ACQUIRED
        if not count:
            count, after = 1, self._after_tags(data, at + _ACQUIRED_FIELDS)
        self._acquired -= count
        if not self._acquired:
            self._element = ShareFetchStream._partition_end
        return after

    def _partition_end(self, data: memoryview, at: int) -> int:
        at = self._after_tags(data, at)
        self._element = ShareFetchStream._partition if self._partitions else ShareFetchStream._topic_end
        return at

    def _topic_end(self, data: memoryview, at: int) -> int:
        at = self._after_tags(data, at)
        self._element = ShareFetchStream._topic if self._topics else ShareFetchStream._node_endpoints
        return at

    def _node_endpoints(self, data: memoryview, at: int) -> int:
        """Pass the rest of the response. If there are addresses, all of it must be in the data."""
        endpoints, _ = _count(data, at)
        if endpoints:
            if len(data) < self.remaining:
                raise IndexError
            data[at:] = self._rewrite(bytes(data[at:]))
        self._is_over = True
        return self.remaining

    def _after_tags(self, data: memoryview, at: int) -> int:
        if not data[at]:
            return at + 1
        at = skip_tags(data, at, self.remaining)
        if at > len(data):
            raise IndexError
        return at


def padded(codec: Codec[messages.ShareFetchResponse], response: messages.ShareFetchResponse, size: int) -> bytes | None:
    """Encode a response in `size` bytes: with one more tagged field if it has fewer.

    None if it has more, or only one or two fewer.
    """
    encoded = codec.encode(response)
    unused = size - len(encoded)
    if not unused:
        return encoded
    for tag in PADDING_TAGS:
        for size_bytes in (1, 2, 3):
            value_bytes = unused - len(uvarint(tag)) - size_bytes
            if value_bytes >= 0 and len(uvarint(value_bytes)) == size_bytes:
                response.unknown_tags += ((tag, bytes(value_bytes)),)
                return codec.encode(response)
    return None


def _count(data: memoryview, at: int) -> tuple[int, int]:
    """Return the length of a compact array, string or bytes (0 if null), and the position after it."""
    count = data[at]
    if count < 0x80:  # one byte
        return max(count - 1, 0), at + 1
    count, at = read_uvarint(data, at)
    return count - 1, at


def _after_string(data: memoryview, at: int) -> int:
    length, at = _count(data, at)
    return at + length
