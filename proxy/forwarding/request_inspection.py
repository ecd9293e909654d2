"""Requests that pass only after a look into them (`walk.Look`).

The walk in C knows some of these by their attributes and settles the common case itself (`_walk.c`); it calls a look
wherever that does not settle it, and for all others. What it settles, the look would have said as well.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from proxy.forwarding.produce_acks import AcksLayout, read_acks
from proxy.forwarding.walk import Expected, Look
from proxy.wire.frame_sizes import REQUEST_HEAD

_int16 = struct.Struct(">h").unpack_from

REMEMBERED_MAX = 4096
"""Requests remembered for one API key and version; then all are forgotten."""
REMEMBERED_BYTES_MAX = 1024
"""Longer ones (behind the correlation id) are not remembered; the same figure stands in _walk.c."""


class Silent:
    """Said of a request that will have no answer."""

    __slots__ = ()
    rewrite = None


SILENT = Silent()


class AcksLook:
    """Produce: without acks there is no answer. What producers without transactions send is read at once."""

    __slots__ = ("_layout", "absent", "expected")

    def __init__(self, layout: AcksLayout, expected: Expected) -> None:
        self._layout = layout
        self.expected = expected
        self.absent = None if layout.strings != 1 else 0 if layout.flexible else 0xFF
        """Comes twice behind the client id where nothing is transactional: no tags and no transactional id, or only
        the latter. None: this version is always read the long way."""

    def __call__(self, buffer: memoryview, at: int, end: int, _frame_end: int) -> Expected | None:
        """See `walk.Look`."""
        absent = self.absent
        if absent is not None and at + 18 <= end:
            client_id = _int16(buffer, at + 12)[0]
            behind = at + 14 + client_id if client_id > 0 else at + 14
            if client_id >= -1 and behind + 4 <= end and buffer[behind] == absent and buffer[behind + 1] == absent:
                return self.expected if _int16(buffer, behind + 2)[0] else SILENT
        acks = read_acks(self._layout, buffer, at, end)
        return self.expected if acks else None if acks is None else SILENT


def look_to_amend(amend: Callable[[memoryview], Expected | None], expected: Expected) -> Look:
    """A request that has come whole is shown to `amend`, without its size; it may say what else is expected."""

    def look(buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        if end < frame_end:
            return None
        return amend(buffer[at + 4 : end]) or expected

    return look


class RememberedLook:
    """In front of a look that judges whole requests by their bytes alone, for those that come again byte for byte.

    What it said of one that passes is remembered by the bytes behind the correlation id, and said again.
    """

    __slots__ = ("_look", "remembered")

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

    def __init__(self, ids: Mapping[bytes, None], topics_at: int, look: Look, expected: Expected) -> None:
        """`topics_at`: bytes from the tags of the header (which are none) to the topics."""
        self.ids = ids
        self.topics_at = topics_at
        self._look = look
        self.expected = expected

    def __call__(self, buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        """See `walk.Look`."""
        return self._look(buffer, at, end, frame_end)


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
