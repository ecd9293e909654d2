"""Plan and request frame of the commonest individual commit while the brokers' metadata holds the ranges: one range
above the committed offset, which stays, and room for all ranges in the metadata (commits/README.md rules 26 and 27).

The C extension `commits.kernel._text_commits` does it in one pass, or the Python fallback here; `KERNEL` names the one
in use. Everything else is left to the model.

A request that repeats another one of the member, with another range, is planned without being read again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable

from kafka_share_proxy.offsets.commit_text import PREFIX, one_range
from kafka_share_proxy.offsets.ranges import OffsetRanges
from kafka_share_proxy.wire import kernels
from kafka_share_proxy.wire.codec.commit_frames import CommittedEntry, read, rewritten
from kafka_share_proxy.wire.codec.primitives import STRING_MAX, Buffer

try:
    from kafka_share_proxy.commits.kernel import _text_commits
except ImportError:  # no compiler was available at installation
    _text_commits = None  # type: ignore[assignment]

BUILT_VERSION = 3
"""`VERSION` of the extension that matches this file. An older one is not used."""

Plan = tuple[bytes, tuple[int, int, int, int]]
"""Request frame for the coordinator, and the effect on the ranges (`partition_commits.MergedRange`)."""


def _python_plan(
    frame: Buffer,
    version: int,
    entry: CommittedEntry,
    committed: int,
    starts: array[int],
    ends: array[int],
    characters: int,
    ranges_max: int,
    sample: bytes | None,
) -> Plan | None:
    if sample is not None:
        repeated = _repeated(bytes(frame), version, entry, sample)
        if repeated is None:
            return None
        entry = repeated
    _, _, offset, epoch, metadata, _, _, _ = entry
    done = None if metadata is None else one_range(metadata)
    if metadata is None or done is None or not 0 <= offset == committed < done.start:
        return None
    if starts and starts[0] <= offset:
        return None
    low = bisect_left(ends, done.start)
    high = bisect_right(starts, done.end, low)
    start = min(done.start, starts[low]) if low < high else done.start
    end = max(done.end, ends[high - 1]) if low < high else done.end
    after = OffsetRanges.from_bounds((*starts[:low], start, *starts[high:]), (*ends[:low], end, *ends[high:]))
    text = PREFIX + str(after) + ("\0" if metadata.endswith("\0") else "")
    if len(after) > ranges_max or len(text) > min(characters, STRING_MAX):
        return None
    return rewritten(frame, version, [entry], [(offset, epoch, text)]), (low, high, start, end)


def _repeated(frame: bytes, version: int, entry: CommittedEntry, sample: bytes) -> CommittedEntry | None:
    """Return the entry of a request that differs from the sample in correlation id and metadata only."""
    _, _, _, _, _, _, metadata_at, after_metadata = entry
    if len(frame) != 4 + int.from_bytes(frame[:4], "big"):
        return None
    if frame[4:8] != sample[4:8] or frame[12:metadata_at] != sample[12:metadata_at]:
        return None
    parts = read(frame, version)
    if parts is None:
        return None
    changed: CommittedEntry = parts[3][0]
    return changed if frame[changed[7] :] == sample[after_metadata:] else None


KERNEL = kernels.choose("commits.kernel._text_commits", _text_commits, BUILT_VERSION)

plan: Callable[[Buffer, int, CommittedEntry, int, array[int], array[int], int, int, bytes | None], Plan | None] = (
    _text_commits.plan if KERNEL == "c" else _python_plan
)
"""(frame, version, entry, committed offset, starts and ends of the ranges, characters and ranges that the metadata may
have, sample). None if the commit is uncommon. With a sample, an earlier request frame, the entry is the sample's, and
the frame must be a whole one that differs from it in correlation id and metadata only.
"""
