"""Looks at requests that are forwarded only after an inspection (`walk.Look`).

The walk in C handles the common case of some kinds itself (`_walk.c`), with the same result as the look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum

from kafka_share_proxy.forwarding.dispatch.early_matches import ByKnownGroup
from kafka_share_proxy.forwarding.walk.walk import Expected, Look
from kafka_share_proxy.wire.codec import prefixes
from kafka_share_proxy.wire.codec.frame_sizes import REQUEST_HEAD
from kafka_share_proxy.wire.codec.prefixes import FieldOf, Unread
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.group_place import group_place

REMEMBERED_MAX = 4096
"""Maximum number of remembered requests for one API version. All are dropped beyond it."""
REMEMBERED_BYTES_MAX = 1024
"""Maximum bytes of a remembered request, after its correlation id. Also in `layouts.h`."""

HEAD_MAX = 128 << 10
"""Bytes of a Produce request that must include its acks: more than the longest client and transactional id need."""


class Silent:
    """Expected entry of a request without a response."""

    __slots__ = ()
    rewrite = None


SILENT = Silent()


class MatchKind(IntEnum):
    """Kind of look that the walk in C may handle itself. The numbers are in `layouts.h`."""

    CALLED = 0
    ACKS = 1
    WORDS = 2
    IDS = 3
    REMEMBERED = 4
    TOPIC = 5
    GROUPS = 6


class AcksMatch:
    """Look at Produce: without acks there is no response. C handles requests of non-transactional producers."""

    __slots__ = ("_read", "absent", "expected")
    kind = int(MatchKind.ACKS)

    def __init__(self, version: int, expected: Expected) -> None:
        self._read = prefixes.of_request(ApiKey.PRODUCE, version, FieldOf("Acks"))
        self.expected = expected
        self.absent = _absent(version)

    def __call__(self, buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        acks = self._read(buffer[at + 4 : min(end, at + HEAD_MAX)], frame_end - at - 4)
        if acks is Unread.MORE_BYTES:
            return None
        return self.expected if acks else SILENT


def look_to_amend(amend: Callable[[memoryview], Expected | None], expected: Expected) -> Look:
    """Return a look that calls `amend` with a complete request without its size, for another treatment."""

    def look(buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        if end < frame_end:
            return None
        return amend(buffer[at + 4 : end]) or expected

    return look


class TopicMatch:
    """Shortcut for a look at Produce that may serve requests here: those with one topic of another name prefix.

    C forwards these as for `AcksMatch`. Python leaves every request to the look.
    """

    __slots__ = ("_look", "absent", "expected", "prefix")
    kind = int(MatchKind.TOPIC)

    def __init__(self, version: int, prefix: bytes, look: Look, expected: Expected) -> None:
        self.absent = _absent(version)
        self.prefix = prefix
        self._look = look
        self.expected = expected

    def __call__(self, buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        return self._look(buffer, at, end, frame_end)


def _absent(version: int) -> int | None:
    """Return the byte that appears twice between client id and acks of a Produce that is not transactional.

    It encodes no tags and no transactional id, or the latter as an old-style string. None: C uses the look.
    """
    first, second = prefixes.after_client_id(ApiKey.PRODUCE, version, "Acks")
    return first if first == second else None


class RememberedMatch:
    """Cache of the look for requests that repeat byte for byte. It stores the results for forwarded requests."""

    __slots__ = ("_look", "remembered")
    kind = int(MatchKind.REMEMBERED)

    def __init__(self, look: Look) -> None:
        self._look = look
        self.remembered: dict[bytes, Expected] = {}
        """Results by the bytes after the correlation id. The walk in C reads this dict directly."""

    def __call__(self, buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        if end < frame_end or frame_end - at - REQUEST_HEAD.size > REMEMBERED_BYTES_MAX:
            return self._look(buffer, at, end, frame_end)
        body = bytes(buffer[at + REQUEST_HEAD.size : end])
        expected = self.remembered.get(body)
        if expected is None:
            expected = self._look(buffer, at, end, frame_end)
            if expected is not None:
                if len(self.remembered) >= REMEMBERED_MAX:
                    self.remembered.clear()
                self.remembered[body] = expected
        return expected


class WordMatch:
    """Shortcut for a look: requests without any of these words are forwarded."""

    __slots__ = ("_look", "expected", "words")
    kind = int(MatchKind.WORDS)

    def __init__(self, words: tuple[bytes, ...], look: Look, expected: Expected) -> None:
        self.words = words
        self._look = look
        self.expected = expected

    def __call__(self, buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        if end < frame_end:
            return None
        request = bytes(buffer[at:end])
        if any(word in request for word in self.words):
            return self._look(buffer, at, end, frame_end)
        return self.expected


class IdMatch:
    """Shortcut for a look at Fetch from v13 on: requests with only known topic ids and no tags are forwarded.

    Python leaves every request to the look.
    """

    __slots__ = ("_look", "expected", "ids", "topics_at")
    kind = int(MatchKind.IDS)

    def __init__(self, ids: Mapping[bytes, None], version: int, look: Look, expected: Expected) -> None:
        self.ids = ids
        self.topics_at = len(prefixes.after_client_id(ApiKey.FETCH, version, "Topics"))
        """Bytes from the (empty) header tags to the topics."""
        self._look = look
        self.expected = expected

    def __call__(self, buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        return self._look(buffer, at, end, frame_end)


class GroupMatch:
    """Shortcut for a look: requests about an unknown group and without these words are forwarded.

    C reads a group id at its usual position. Python leaves every request to the look.
    """

    __slots__ = ("_look", "expected", "groups", "place", "unless", "words")
    kind = int(MatchKind.GROUPS)

    def __init__(self, wants: ByKnownGroup, api: tuple[int, int], look: Look, expected: Expected) -> None:
        self.groups, self.unless, self.words = wants.groups, wants.unless, wants.words
        self.place = tuple(group_place(*api))
        self._look = look
        self.expected = expected

    def __call__(self, buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        return None if end < frame_end else self._look(buffer, at, end, frame_end)


def look_to_inspect(serve_here: Callable[[memoryview], bool], forward: Look) -> Look:
    """Return a look that forwards a complete request that is not served here. `forward` returns the expected entry."""

    def look(buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        if end < frame_end or serve_here(buffer[at + 4 : end]):
            return None
        return forward(buffer, at, end, frame_end)

    return look


def look_at_beginning(serve_here: Callable[[memoryview], bool], forward: Look) -> Look:
    """Return a look like `look_to_inspect` for long requests: `serve_here` gets the bytes received so far.

    If they do not suffice, it returns True, and is called again once the request is gathered.
    """

    def look(buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        if serve_here(buffer[at + 4 : end]):
            return None
        return forward(buffer, at, end, frame_end)

    return look
