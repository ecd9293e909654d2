"""Inspections of requests before they are forwarded (`walk.Inspect`).

The walk in C handles the common case of some kinds itself (`_walk.c`), with the same result as in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum

from kafka_share_proxy.forwarding.dispatch.early_matches import ByKnownGroup
from kafka_share_proxy.forwarding.walk.walk import Expected, Inspect
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
    """Kind of inspection that the walk in C may handle itself. The numbers are in `layouts.h`."""

    CALLED = 0
    ACKS = 1
    WORDS = 2
    IDS = 3
    REMEMBERED = 4
    TOPIC = 5
    GROUPS = 6


class AcksMatch:
    """Inspect at Produce: without acks there is no response. C handles requests of non-transactional producers."""

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


def inspect_to_amend(amend: Callable[[memoryview], Expected | None], expected: Expected) -> Inspect:
    """Return an inspection that calls `amend` with a complete request without its size, for another treatment."""

    def inspect(buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        if end < frame_end:
            return None
        return amend(buffer[at + 4 : end]) or expected

    return inspect


class TopicMatch:
    """Shortcut for an inspection of Produce that may serve requests here: those with one topic of another name prefix.

    C forwards these as for `AcksMatch`. Python leaves every request to the inspection.
    """

    __slots__ = ("_inspect", "absent", "expected", "prefix")
    kind = int(MatchKind.TOPIC)

    def __init__(self, version: int, prefix: bytes, inspect: Inspect, expected: Expected) -> None:
        self.absent = _absent(version)
        self.prefix = prefix
        self._inspect = inspect
        self.expected = expected

    def __call__(self, buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        return self._inspect(buffer, at, end, frame_end)


def _absent(version: int) -> int | None:
    """Return the byte that appears twice between client id and acks of a Produce that is not transactional.

    It encodes no tags and no transactional id, or the latter as an old-style string. None: C calls the inspection.
    """
    first, second = prefixes.after_client_id(ApiKey.PRODUCE, version, "Acks")
    return first if first == second else None


class RememberedMatch:
    """Cache of the inspection for requests that repeat byte for byte. It stores the results for forwarded requests."""

    __slots__ = ("_inspect", "remembered")
    kind = int(MatchKind.REMEMBERED)

    def __init__(self, inspect: Inspect) -> None:
        self._inspect = inspect
        self.remembered: dict[bytes, Expected] = {}
        """Results by the bytes after the correlation id. The walk in C reads this dict directly."""

    def __call__(self, buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        if end < frame_end or frame_end - at - REQUEST_HEAD.size > REMEMBERED_BYTES_MAX:
            return self._inspect(buffer, at, end, frame_end)
        body = bytes(buffer[at + REQUEST_HEAD.size : end])
        expected = self.remembered.get(body)
        if expected is None:
            expected = self._inspect(buffer, at, end, frame_end)
            if expected is not None:
                if len(self.remembered) >= REMEMBERED_MAX:
                    self.remembered.clear()
                self.remembered[body] = expected
        return expected


class WordMatch:
    """Shortcut for an inspection: requests without any of these words are forwarded."""

    __slots__ = ("_inspect", "expected", "words")
    kind = int(MatchKind.WORDS)

    def __init__(self, words: tuple[bytes, ...], inspect: Inspect, expected: Expected) -> None:
        self.words = words
        self._inspect = inspect
        self.expected = expected

    def __call__(self, buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        if end < frame_end:
            return None
        request = bytes(buffer[at:end])
        if any(word in request for word in self.words):
            return self._inspect(buffer, at, end, frame_end)
        return self.expected


class IdMatch:
    """Shortcut for an inspection of Fetch from v13 on: requests with only known topic ids and no tags are forwarded.

    Python leaves every request to the inspection.
    """

    __slots__ = ("_inspect", "expected", "ids", "topics_at")
    kind = int(MatchKind.IDS)

    def __init__(self, ids: Mapping[bytes, None], version: int, inspect: Inspect, expected: Expected) -> None:
        self.ids = ids
        self.topics_at = len(prefixes.after_client_id(ApiKey.FETCH, version, "Topics"))
        """Bytes from the (empty) header tags to the topics."""
        self._inspect = inspect
        self.expected = expected

    def __call__(self, buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        return self._inspect(buffer, at, end, frame_end)


class GroupMatch:
    """Shortcut for an inspection: requests about an unknown group and without these words are forwarded.

    C reads a group id at its usual position. Python leaves every request to the inspection.
    """

    __slots__ = ("_inspect", "expected", "groups", "place", "unless", "words")
    kind = int(MatchKind.GROUPS)

    def __init__(self, wants: ByKnownGroup, api: tuple[int, int], inspect: Inspect, expected: Expected) -> None:
        self.groups, self.unless, self.words = wants.groups, wants.unless, wants.words
        self.place = tuple(group_place(*api))
        self._inspect = inspect
        self.expected = expected

    def __call__(self, buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        return None if end < frame_end else self._inspect(buffer, at, end, frame_end)


def inspect_unserved(serve_here: Callable[[memoryview], bool], forward: Inspect) -> Inspect:
    """Return an inspection of a complete request, which `forward` treats if it is not served here."""

    def inspect(buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        if end < frame_end or serve_here(buffer[at + 4 : end]):
            return None
        return forward(buffer, at, end, frame_end)

    return inspect


def inspect_beginning(serve_here: Callable[[memoryview], bool], forward: Inspect) -> Inspect:
    """Return an inspection like `inspect_unserved` for long requests: `serve_here` gets the bytes received so far.

    If they do not suffice, it returns True, and is called again once the request is gathered.
    """

    def inspect(buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        if serve_here(buffer[at + 4 : end]):
            return None
        return forward(buffer, at, end, frame_end)

    return inspect
