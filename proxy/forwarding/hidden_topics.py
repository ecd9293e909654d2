"""Topics that answers to "all topics" leave out, cut out of the bytes of the answer.

Why not through the codec: an answer about 100,000 partitions takes it a second and a half, in which nobody is served,
and in a cluster where share state is kept there is always something to leave out. A search through the bytes takes
milliseconds. It relies on what brokers allow in the names of topics (org.apache.kafka.common.internals.Topic: letters,
digits, dot, underscore and minus, at most 249): so the bytes before a hidden name tell whether a topic begins there.
What they do not tell for certain is left to the codec.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proxy.wire import headers, prefixes, primitives
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import RemoteProtocolError
from proxy.wire.prefixes import ArrayAt

KEY = ApiKey.METADATA
FLEXIBLE_SINCE = 9
"""Lengths are varints from here on."""
HIDDEN_PREFIXES = ("__proxy_", "__view.")
HIDDEN_TOPICS = ("__individual_commit_offsets",)

_TRACES = tuple(word.encode() for word in (*HIDDEN_PREFIXES, *HIDDEN_TOPICS))
_NAME_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_USUAL_CODES = frozenset({0, 3, 5})
"""Error codes of a topic. None of them is the length of a name that has a hidden one in it, behind one more letter."""


class Unclear(Exception):  # no error: a reason to decode
    """The bytes alone do not tell."""


def is_hidden(topic: str | None) -> bool:
    """Whether answers about all topics leave this one out."""
    return topic is not None and (topic.startswith(HIDDEN_PREFIXES) or topic in HIDDEN_TOPICS)


def show_no_hidden(answer: Any) -> None:
    """The long way: take them out of a decoded answer."""
    answer.topics = [topic for topic in answer.topics or () if not is_hidden(topic.name)]


def without_hidden(frame: bytes | memoryview, version: int) -> list[bytes | memoryview] | None:
    """An answer to Metadata (without size) in pieces that leave the hidden topics out; None where there are none.

    Raises:
        Unclear: it takes the codec to tell.
    """
    answer = bytes(frame)
    if not any(trace in answer for trace in _TRACES):
        return None
    try:
        return _cut(answer, version)
    except (IndexError, RemoteProtocolError) as error:
        raise Unclear from error


def _cut(answer: bytes, version: int) -> list[bytes | memoryview] | None:
    body = headers.response_body_offset(KEY, version, answer)
    topics = prefixes.of_body("MetadataResponse", version, ArrayAt("Topics"))
    count_at, count, at = topics(answer, len(answer), p=body)
    extents = sorted(_extents(answer, at, version))
    if not extents:
        return None
    if len(extents) > count:
        raise Unclear
    left = count - len(extents)
    number = primitives.uvarint(left + 1) if version >= FLEXIBLE_SINCE else left.to_bytes(4, "big")
    pieces: list[bytes | memoryview] = [answer[:count_at], number]
    view = memoryview(answer)
    for begin, end in extents:
        if begin < at:
            raise Unclear
        pieces.append(view[at:begin])
        at = end
    return [*pieces, view[at:]]


def _extents(answer: bytes, start: int, version: int) -> Iterator[tuple[int, int]]:
    """Where the hidden topics stand."""
    read = prefixes.of_element("MetadataResponse", version, "Topics", "Name")
    for trace in _TRACES:
        at = answer.find(trace, start)
        while at >= 0:
            begin = _begin(answer, at, version >= FLEXIBLE_SINCE)
            if begin is not None:
                name, end = read(answer, len(answer), p=begin)
                if is_hidden(name):
                    yield begin, end
            at = answer.find(trace, at + 1)


def _begin(answer: bytes, name_at: int, flexible: bool) -> int | None:
    """Where the topic begins whose name begins here; None where this stands within a name.

    Raises:
        Unclear: it is neither for certain.
    """
    before = answer[name_at - 1]
    if not flexible:  # a length of two bytes, and no name has a zero in it
        return None if answer[name_at - 2] else name_at - 4
    if before == 1 and answer[name_at - 2] >= 0x80:
        return name_at - 4
    if not answer[name_at - 3] and answer[name_at - 2] in _USUAL_CODES:
        return name_at - 3
    if before in _NAME_BYTES and answer[name_at - 3] not in (0x00, 0xFF):
        return None  # no code begins so
    raise Unclear
