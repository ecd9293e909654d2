"""Requests that pass only after a look into them (`walk.Look`).

The walk in C knows some of these by their `kind` and settles the common case itself (`_walk.c`); it calls a look
wherever that does not settle it, and for all others. What it settles, the look would have said as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum

from proxy.forwarding.early_looks import ByKnownGroup
from proxy.forwarding.walk import Expected, Look
from proxy.wire import prefixes
from proxy.wire.api_key import ApiKey
from proxy.wire.frame_sizes import REQUEST_HEAD
from proxy.wire.group_place import group_place
from proxy.wire.prefixes import FieldOf, Unread

REMEMBERED_MAX = 4096
"""Requests remembered for one API key and version; then all are forgotten."""
REMEMBERED_BYTES_MAX = 1024
"""Longer ones (behind the correlation id) are not remembered; `layouts.h` has the figure for C."""

HEAD_MAX = 128 << 10
"""Bytes of a Produce request in which its acks must stand; more than the longest client and transactional id take."""


class Silent:
    """Said of a request that will have no answer."""

    __slots__ = ()
    rewrite = None


SILENT = Silent()


class LookKind(IntEnum):
    """What the walk in C may settle itself; the numbers stand in `layouts.h`."""

    CALLED = 0
    """Nothing: the look is called."""
    ACKS = 1
    WORDS = 2
    IDS = 3
    REMEMBERED = 4
    TOPIC = 5
    GROUPS = 6


class AcksLook:
    """Produce: without acks there is no answer. What producers without transactions send is read in C."""

    __slots__ = ("_read", "absent", "expected")
    kind = int(LookKind.ACKS)

    def __init__(self, version: int, expected: Expected) -> None:
        self._read = prefixes.of_request(ApiKey.PRODUCE, version, FieldOf("Acks"))
        self.expected = expected
        self.absent = _absent(version)

    def __call__(self, buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        """See `walk.Look`."""
        acks = self._read(buffer[at + 4 : min(end, at + HEAD_MAX)], frame_end - at - 4)
        if acks is Unread.MORE_BYTES:
            return None
        return self.expected if acks else SILENT


def look_to_amend(amend: Callable[[memoryview], Expected | None], expected: Expected) -> Look:
    """A request that has come whole is shown to `amend`, without its size; it may say what else is expected."""

    def look(buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        if end < frame_end:
            return None
        return amend(buffer[at + 4 : end]) or expected

    return look


class TopicLook:
    """In front of a look at Produce that may serve requests here: one to a single topic whose name does not begin so
    passes as for `AcksLook`, which is settled in C. Here it is all left to the look."""

    __slots__ = ("_look", "absent", "expected", "prefix")
    kind = int(LookKind.TOPIC)

    def __init__(self, version: int, prefix: bytes, look: Look, expected: Expected) -> None:
        self.absent = _absent(version)
        self.prefix = prefix
        self._look = look
        self.expected = expected

    def __call__(self, buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        """See `walk.Look`."""
        return self._look(buffer, at, end, frame_end)


def _absent(version: int) -> int | None:
    """The byte that comes twice between client id and acks of a Produce that is not transactional: no tags and no
    transactional id, or the latter as an old-style string. None: C leaves this version to the look."""
    first, second = prefixes.behind_client_id(ApiKey.PRODUCE, version, "Acks")
    return first if first == second else None


class RememberedLook:
    """In front of a look that judges whole requests by their bytes alone, for those that come again byte for byte.

    What it said of one that passes is remembered by the bytes behind the correlation id, and said again.
    """

    __slots__ = ("_look", "remembered")
    kind = int(LookKind.REMEMBERED)

    def __init__(self, look: Look) -> None:
        self._look = look
        self.remembered: dict[bytes, Expected] = {}
        """The walk in C looks in here itself."""

    def __call__(self, buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        """See `walk.Look`."""
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


class WordLook:
    """In front of a look that may serve requests here: one without any of these words is none of those, and passes."""

    __slots__ = ("_look", "expected", "words")
    kind = int(LookKind.WORDS)

    def __init__(self, words: tuple[bytes, ...], look: Look, expected: Expected) -> None:
        self.words = words
        self._look = look
        self.expected = expected

    def __call__(self, buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        """See `walk.Look`."""
        if end < frame_end:
            return None
        request = bytes(buffer[at:end])
        if any(word in request for word in self.words):
            return self._look(buffer, at, end, frame_end)
        return self.expected


class IdLook:
    """In front of a look at Fetch from v13 on: a request whose topic ids are all known passes, if nothing has tags.

    The walk in C reads the ids; here it is all left to the look.
    """

    __slots__ = ("_look", "expected", "ids", "topics_at")
    kind = int(LookKind.IDS)

    def __init__(self, ids: Mapping[bytes, None], version: int, look: Look, expected: Expected) -> None:
        self.ids = ids
        self.topics_at = len(prefixes.behind_client_id(ApiKey.FETCH, version, "Topics"))
        """Bytes from the tags of the header (which are none) to the topics."""
        self._look = look
        self.expected = expected

    def __call__(self, buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        """See `walk.Look`."""
        return self._look(buffer, at, end, frame_end)


class GroupLook:
    """In front of a look that may serve requests about groups here: one about a group that nobody knows passes, if none
    of the words stands in it (`early_looks.ByKnownGroup`).

    The walk in C reads a group that is named in the usual way; here it is all left to the look.
    """

    __slots__ = ("_look", "expected", "groups", "place", "unless", "words")
    kind = int(LookKind.GROUPS)

    def __init__(self, wants: ByKnownGroup, api: tuple[int, int], look: Look, expected: Expected) -> None:
        """`api`: key and version."""
        self.groups, self.unless, self.words = wants.groups, wants.unless, wants.words
        self.place = tuple(group_place(*api))
        self._look = look
        self.expected = expected

    def __call__(self, buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        """See `walk.Look`."""
        return None if end < frame_end else self._look(buffer, at, end, frame_end)


def look_to_inspect(serve_here: Callable[[memoryview], bool], forward: Look) -> Look:
    """A request that has come whole and is not served here passes; `forward` says what is expected as its answer."""

    def look(buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        if end < frame_end or serve_here(buffer[at + 4 : end]):
            return None
        return forward(buffer, at, end, frame_end)

    return look


def look_at_beginning(serve_here: Callable[[memoryview], bool], forward: Look) -> Look:
    """As `look_to_inspect`, for requests too long to wait for: `serve_here` gets what has come of the frame, and says
    yes where that is not enough to tell; the request is gathered then, and it is asked again."""

    def look(buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        if serve_here(buffer[at + 4 : end]):
            return None
        return forward(buffer, at, end, frame_end)

    return look
