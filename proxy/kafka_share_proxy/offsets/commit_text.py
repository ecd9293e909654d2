"""Text form of done ranges, which any client can commit and fetch as the metadata of an offset.

    ic/1;43-45,48-49[;pr=70-120,...][;u=<text of the user, to the end>]

Source: offsets/README.md rules 8-12.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import ge, gt

from kafka_share_proxy.offsets.ranges import OFFSET_MAX, OffsetRanges, OffsetSpan

VERSION = 1
PREFIX = f"ic/{VERSION};"
"""Prefix of texts of this module."""
RANGES_MAX = 10_000
"""Default maximum number of ranges and catch-up ranges in one text."""
PIECE_MAX = 60
"""Number of characters of the invalid piece that an error shows."""

_ANY_VERSION = re.compile(r"ic/([1-9][0-9]{0,8});")
_RANGE = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")
_NEGATIVE = re.compile(r"-?[0-9]{1,19}--?[0-9]{1,19}")
_HUGE = re.compile(r"[0-9]+-[0-9]+")
_ONE_RANGE = re.compile(r"ic/1;([0-9]{1,18})-([0-9]{1,18})\0*")
_RANGES = re.compile(r"[0-9]{1,19}-[0-9]{1,19}(?:,[0-9]{1,19}-[0-9]{1,19})*+")


class CommitTextError(ValueError):
    """The text of ranges is invalid. The error names the wrong piece and what to do."""


class MalformedCommitText(CommitTextError):
    """The text violates the grammar, or has impossible offsets."""


class UnknownCommitTextVersion(CommitTextError):
    """The text has another version of the grammar."""


class TooManyRanges(CommitTextError):
    """The text has more ranges than the reader accepts."""


@dataclass(frozen=True, slots=True)
class CommitText:
    """Content of a text. `str()` returns its canonical form."""

    ranges: OffsetRanges = field(default_factory=OffsetRanges)
    catch_up: tuple[OffsetSpan, ...] = ()
    """Ranges that a second flow of the same consumer is reading (`pr`), as given."""
    user_text: str | None = None
    """The user's own metadata (`u`)."""

    def __str__(self) -> str:
        catch_up = f";pr={','.join(f'{start}-{end}' for start, end in self.catch_up)}" if self.catch_up else ""
        user_text = "" if self.user_text is None else f";u={_without_nul(self.user_text)}"
        return f"{PREFIX}{self.ranges}{catch_up}{user_text}"


def commit_text_version(metadata: str | None) -> int | None:
    """Return the version of the grammar. None if the metadata is not a text of ranges."""
    if metadata is None or not metadata.startswith("ic/"):
        return None
    match = _ANY_VERSION.match(metadata)
    return int(match[1]) if match else None


def parse_commit_text(metadata: str, ranges_max: int = RANGES_MAX) -> CommitText:
    """Read a text that begins with `ic/`. NULs at its end are ignored: confluent-kafka-python sends one.

    Raises:
        MalformedCommitText: the text violates the grammar.
        UnknownCommitTextVersion: the text begins with `ic/` and another number.
        TooManyRanges: the text has more than `ranges_max` ranges and catch-up ranges.
    """
    _check_version(metadata)
    head, user_text = _without_user_text(_without_nul(metadata)[len(PREFIX) :])
    ranges_text, *fields = head.split(";", 2)
    catch_up = _catch_up_of(fields)
    _check_count(ranges_text, catch_up, ranges_max)
    return CommitText(_done_ranges(ranges_text), _catch_up_ranges(catch_up), user_text)


def one_range(metadata: str) -> OffsetRanges | None:
    """Return the range of a text with one, which nearly all are. None if `parse_commit_text` has to parse it."""
    match = _ONE_RANGE.fullmatch(metadata)
    if match is None:
        return None
    first, end = int(match[1]), int(match[2]) + 1
    return OffsetRanges.of_one(first, end) if first < end else None


def write_commit_text(
    ranges: Iterable[tuple[int, int]] = (),
    catch_up: Iterable[tuple[int, int]] = (),
    user_text: str | None = None,
) -> str:
    """Return the canonical text of half-open ranges. Raises ValueError for an invalid range."""
    spans = tuple(OffsetSpan(*each) for each in catch_up)
    return str(CommitText(ranges if isinstance(ranges, OffsetRanges) else OffsetRanges(ranges), spans, user_text))


def fit_commit_text(text: CommitText, characters_max: int) -> tuple[str, tuple[OffsetSpan, ...]]:
    """Return a text of the widest ranges that fit, with all of `pr` and `u`, and the ranges left out, ascending.

    Raises ValueError if even the text without ranges is too long.
    """
    whole = str(text)
    if len(whole) <= characters_max:
        return whole, ()
    room = characters_max - len(write_commit_text((), text.catch_up, text.user_text))
    if room < 0:
        raise ValueError(f"user_text and catch_up alone are {-room} characters more than the {characters_max}")
    room += 1  # the first range has no comma before it
    fitting: list[OffsetSpan] = []
    by_width = sorted(text.ranges, key=lambda span: span.start - span.end)
    for span in by_width:
        room -= len(str(span)) + 1
        if room < 0:
            break
        fitting.append(span)
    return write_commit_text(fitting, text.catch_up, text.user_text), tuple(sorted(by_width[len(fitting) :]))


def split_commit_text(text: CommitText, bytes_max: int) -> list[str]:
    """Divide a text into several, with the ranges in ascending order and all of `pr` and `u` in each.

    Raises ValueError if a text with only one of the ranges is too long.
    """
    fixed = len(write_commit_text((), text.catch_up, text.user_text).encode())
    pieces: list[list[OffsetSpan]] = [[]]
    room = bytes_max - fixed
    for span in text.ranges:
        size = len(str(span)) + bool(pieces[-1])
        if size > room and pieces[-1]:
            pieces.append([])
            room, size = bytes_max - fixed, len(str(span))
        if size > room:
            raise ValueError(
                f"user_text and catch_up alone are {fixed} bytes, of {bytes_max}; {span} needs {size} more"
            )
        pieces[-1].append(span)
        room -= size
    return [write_commit_text(each, text.catch_up, text.user_text) for each in pieces]


def _without_nul(text: str) -> str:
    return text.rstrip("\0")


def _check_version(metadata: str) -> None:
    version = commit_text_version(metadata)
    if version is None:
        raise MalformedCommitText(f"{_shown(metadata)} does not begin with {PREFIX!r}")
    if version != VERSION:
        raise UnknownCommitTextVersion(f"{_shown(metadata)} has version {version}: write version {VERSION}")


def _without_user_text(text: str) -> tuple[str, str | None]:
    head, separator, user_text = text.partition(";u=")
    return head, user_text if separator else None


def _catch_up_of(fields: list[str]) -> str:
    """Return the text after `pr=`, or "" if there is none."""
    if not fields:
        return ""
    if not fields[0].startswith("pr="):
        raise MalformedCommitText(f"{_shown(fields[0])} is neither 'pr=' nor 'u=': put your own text after ';u='")
    if len(fields) > 1:
        raise MalformedCommitText(f"{_shown(fields[1])} follows 'pr=', where only 'u=' may")
    if fields[0] == "pr=":
        raise MalformedCommitText("'pr=' names no ranges: leave it out")
    return fields[0].removeprefix("pr=")


def _check_count(done: str, catch_up: str, ranges_max: int) -> None:
    count = sum(text.count(",") + 1 for text in (done, catch_up) if text)
    if count > ranges_max:
        raise TooManyRanges(f"{count} ranges are more than {ranges_max}: finish the oldest records first")


def _done_ranges(text: str) -> OffsetRanges:
    if not text:
        return OffsetRanges()
    firsts, lasts = _numbers(text)
    if any(map(gt, firsts, lasts)):
        raise _wrong_piece(text, lambda first, last: first > last, "begins after its end: write first-last")
    return OffsetRanges.from_bounds(firsts, [last + 1 for last in lasts])


def _catch_up_ranges(text: str) -> tuple[OffsetSpan, ...]:
    if not text:
        return ()
    starts, ends = _numbers(text)
    if any(map(ge, starts, ends)):
        raise _wrong_piece(text, lambda start, end: start >= end, "after 'pr=' contains no offset: write start-end")
    return tuple(map(OffsetSpan, starts, ends))


def _numbers(text: str) -> tuple[list[int], list[int]]:
    """Return the first and the second numbers of `1-2,3-4`. Raises MalformedCommitText."""
    if not _RANGES.fullmatch(text):
        raise _malformed(text)
    numbers = [int(number) for number in text.replace("-", ",").split(",")]
    seconds = numbers[1::2]
    if max(seconds) > OFFSET_MAX:
        raise _wrong_piece(text, lambda _, last: last > OFFSET_MAX, f"goes beyond the largest offset, {OFFSET_MAX}")
    return numbers[::2], seconds


def _malformed(text: str) -> MalformedCommitText:
    piece = next(piece for piece in text.split(",") if not _RANGE.fullmatch(piece))
    if _NEGATIVE.fullmatch(piece):
        return MalformedCommitText(f"{_shown(piece)} has a negative offset: offsets begin at 0")
    if _HUGE.fullmatch(piece):
        return MalformedCommitText(f"{_shown(piece)} goes beyond the largest offset, {OFFSET_MAX}")
    if piece.startswith(("pr=", "u=")):
        return MalformedCommitText(f"{_shown(piece)} is not a list of ranges, which may be empty: write '{PREFIX};...'")
    return MalformedCommitText(
        f"{_shown(piece)} is no range: write first-last, as in 43-45, with commas between ranges"
    )


def _wrong_piece(text: str, wrong: Callable[[int, int], bool], why: str) -> MalformedCommitText:
    for piece in text.split(","):
        first, _, last = piece.partition("-")
        if wrong(int(first), int(last)):
            return MalformedCommitText(f"{_shown(piece)} {why}")
    raise AssertionError("no range is wrong")


def _shown(piece: str) -> str:
    return repr(piece) if len(piece) <= PIECE_MAX else f"{piece[:PIECE_MAX]!r}..."
