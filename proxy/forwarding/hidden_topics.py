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

from proxy.wire import headers, primitives
from proxy.wire.errors import RemoteProtocolError

KEY = 3
FLEXIBLE_SINCE = 9
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
    except (IndexError, UnicodeDecodeError, RemoteProtocolError) as error:
        raise Unclear from error


def _cut(answer: bytes, version: int) -> list[bytes | memoryview] | None:
    reader = _Reader(answer, headers.response_body_offset(KEY, version, answer), version)
    reader.brokers()
    count_at = reader.at
    count = reader.count()
    extents = sorted(_extents(answer, reader.at, version))
    if not extents:
        return None
    if len(extents) > count:
        raise Unclear
    left = count - len(extents)
    number = primitives.uvarint(left + 1) if reader.flexible else left.to_bytes(4, "big")
    pieces: list[bytes | memoryview] = [answer[:count_at], number]
    view, at = memoryview(answer), reader.at
    for begin, end in extents:
        if begin < at:
            raise Unclear
        pieces.append(view[at:begin])
        at = end
    return [*pieces, view[at:]]


def _extents(answer: bytes, start: int, version: int) -> Iterator[tuple[int, int]]:
    """Where the hidden topics stand."""
    for trace in _TRACES:
        at = answer.find(trace, start)
        while at >= 0:
            begin = _begin(answer, at, version >= FLEXIBLE_SINCE)
            if begin is not None:
                reader = _Reader(answer, begin, version)
                name = reader.topic()
                if is_hidden(name.decode()):
                    yield begin, reader.at
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


class _Reader:
    """Goes through an answer to Metadata without keeping anything. IndexError: it ends within."""

    def __init__(self, answer: bytes, at: int, version: int) -> None:
        self._answer, self.at, self._version = answer, at, version
        self.flexible = version >= FLEXIBLE_SINCE

    def brokers(self) -> None:
        """What stands in front of the topics."""
        version = self._version
        self._skip(4 * (version >= 3))
        for _ in range(self.count()):
            self._skip(4)
            self._string()
            self._skip(4)
            if version >= 1:
                self._string()
            self._tags()
        if version >= 2:
            self._string()
        self._skip(4 * (version >= 1))

    def topic(self) -> bytes:
        """One topic with its partitions; its name."""
        version = self._version
        self._skip(2)
        name = self._string()
        self._skip(16 * (version >= 10) + (version >= 1))
        for _ in range(self.count()):
            self._skip(14 if version >= 7 else 10)
            for _ in range(3 if version >= 5 else 2):
                self._skip(4 * self.count())
            self._tags()
        self._skip(4 * (version >= 8))
        self._tags()
        return name

    def count(self) -> int:
        """Of the elements that follow."""
        if self.flexible:
            number, self.at = primitives.read_uvarint(self._answer, self.at)
            return max(number - 1, 0)
        self._skip(4)
        return max(int.from_bytes(self._answer[self.at - 4 : self.at], "big", signed=True), 0)

    def _string(self) -> bytes:
        if self.flexible:
            size, self.at = primitives.read_uvarint(self._answer, self.at)
            size = max(size - 1, 0)
        else:
            self._skip(2)
            size = max(int.from_bytes(self._answer[self.at - 2 : self.at], "big", signed=True), 0)
        self._skip(size)
        return self._answer[self.at - size : self.at]

    def _tags(self) -> None:
        if self.flexible:
            self.at = primitives.skip_tags(self._answer, self.at, len(self._answer))

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self._answer):
            raise IndexError
