"""Removal of hidden topics from Metadata responses about "all topics", by cutting the bytes.

The codec takes a second and a half for a response about 100,000 partitions, and blocks the loop. A search through the
bytes takes milliseconds. It relies on the characters that brokers allow in topic names
(org.apache.kafka.common.internals.Topic: letters, digits, dot, underscore and minus, at most 249): the bytes before a
hidden name show whether a topic begins there. Ambiguous cases are left to the codec.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafka_share_proxy.wire.codec import headers, prefixes, primitives
from kafka_share_proxy.wire.codec.prefixes import ArrayAt
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import RemoteProtocolError

KEY = ApiKey.METADATA
FLEXIBLE_SINCE = 9
"""First version in which lengths are varints."""
HIDDEN_PREFIXES = ("__proxy_", "__view.")
HIDDEN_TOPICS = ("__individual_commit_offsets",)

_TRACES = tuple(word.encode() for word in (*HIDDEN_PREFIXES, *HIDDEN_TOPICS))
_NAME_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_COMMON_CODES = frozenset({0, 3, 5})
"""None equals the length of a name that contains a hidden name after one more letter."""


class Unclear(Exception):  # not an error: a reason to decode
    """Raised if the bytes alone are ambiguous."""


def is_hidden(topic: str | None) -> bool:
    """Return True if responses about all topics leave this topic out."""
    return topic is not None and (topic.startswith(HIDDEN_PREFIXES) or topic in HIDDEN_TOPICS)


def show_no_hidden(response: Any) -> None:
    response.topics = [topic for topic in response.topics or () if not is_hidden(topic.name)]


def without_hidden(frame: bytes | memoryview, version: int) -> list[bytes | memoryview] | None:
    """Return the pieces of a Metadata response (without size). None if it has no hidden topic.

    Raises Unclear if the bytes are ambiguous.
    """
    response = bytes(frame)
    if not any(trace in response for trace in _TRACES):
        return None
    try:
        return _cut(response, version)
    except (IndexError, RemoteProtocolError) as error:
        raise Unclear from error


def _cut(response: bytes, version: int) -> list[bytes | memoryview] | None:
    body = headers.response_body_offset(KEY, version, response)
    topics = prefixes.of_body("MetadataResponse", version, ArrayAt("Topics"))
    count_at, count, at = topics(response, len(response), p=body)
    extents = sorted(_extents(response, at, version))
    if not extents:
        return None
    if len(extents) > count:
        raise Unclear
    remaining = count - len(extents)
    number = primitives.uvarint(remaining + 1) if version >= FLEXIBLE_SINCE else remaining.to_bytes(4, "big")
    pieces: list[bytes | memoryview] = [response[:count_at], number]
    view = memoryview(response)
    for begin, end in extents:
        if begin < at:
            raise Unclear
        pieces.append(view[at:begin])
        at = end
    return [*pieces, view[at:]]


def _extents(response: bytes, start: int, version: int) -> Iterator[tuple[int, int]]:
    read = prefixes.of_element("MetadataResponse", version, "Topics", "Name")
    for trace in _TRACES:
        at = response.find(trace, start)
        while at >= 0:
            begin = _begin(response, at, version >= FLEXIBLE_SINCE)
            if begin is not None:
                name, end = read(response, len(response), p=begin)
                if is_hidden(name):
                    yield begin, end
            at = response.find(trace, at + 1)


def _begin(response: bytes, name_at: int, flexible: bool) -> int | None:
    """Return where the topic with this name begins. None if the position is within a longer name.

    Raises Unclear if the bytes allow both.
    """
    before = response[name_at - 1]
    if not flexible:  # a length of two bytes, and no name has a zero in it
        return None if response[name_at - 2] else name_at - 4
    if before == 1 and response[name_at - 2] >= 0x80:
        return name_at - 4
    if not response[name_at - 3] and response[name_at - 2] in _COMMON_CODES:
        return name_at - 3
    if before in _NAME_BYTES and response[name_at - 3] not in (0x00, 0xFF):
        return None  # no error code begins with this byte
    raise Unclear
