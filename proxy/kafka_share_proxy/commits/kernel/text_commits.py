"""Plan, request frame and effect of the commonest individual commit while the brokers' metadata holds the ranges: one
range above the committed offset, which stays, and room for all ranges in the metadata (commits/README.md rules 26, 27).

The C extension `commits.kernel._text_commits` does it in one pass, or the Python fallback here; `KERNEL` names the one
in use. Everything else is left to the model.

A request that repeats another one of the member, with another range, is planned without being read again, and its
effect is applied without reading a response that repeats an earlier one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import NamedTuple

from kafka_share_proxy.offsets.commit_text import PREFIX, one_range
from kafka_share_proxy.offsets.ranges import OffsetRanges
from kafka_share_proxy.wire import kernels
from kafka_share_proxy.wire.codec.commit_frames import CommittedEntry, read, rewritten
from kafka_share_proxy.wire.codec.primitives import STRING_MAX, Buffer

try:
    from kafka_share_proxy.commits.kernel import _text_commits
except ImportError:  # no compiler was available at installation
    _text_commits = None  # type: ignore[assignment]

BUILT_VERSION = 4
"""`VERSION` of the extension that matches this file. An older one is not used."""

Bounds = tuple["array[int]", "array[int]"]
"""Starts and ends of the ranges, ascending."""
Plan = tuple[bytes, int, int, int, int, int, int, int]
"""Request frame for the coordinator, its correlation id, the effect on the ranges (four arguments of
`OffsetRanges.replace`), and start and end of the client's range.
"""


class Sample(NamedTuple):
    """Request that is planned, or repeated by the one that is."""

    version: int
    entry: CommittedEntry
    ranges_max: int
    frame: bytes | None
    """None for the request that is planned."""


def _python_plan(
    received: Buffer, size: int, sample: Sample, committed: int, bounds: Bounds, characters: int
) -> Plan | None:
    (version, entry, ranges_max, sample_frame), (starts, ends) = sample, bounds
    frame = bytes(received[:size])
    if sample_frame is not None:
        repeated = _repeated(frame, version, entry, sample_frame)
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
    request = rewritten(frame, version, [entry], [(offset, epoch, text)])
    return request, int.from_bytes(request[8:12], "big", signed=True), low, high, start, end, done.start, done.end


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


def _python_merge_repeated(response: bytes, sample: bytes, bounds: Bounds, plan: Plan) -> bool:
    if len(sample) < 8 or (response[:4], response[8:]) != (sample[:4], sample[8:]):
        return False
    (_, _, low, high, start, end, _, _), (starts, ends) = plan, bounds
    starts[low:high], ends[low:high] = array("q", (start,)), array("q", (end,))
    return True


KERNEL = kernels.choose("commits.kernel._text_commits", _text_commits, BUILT_VERSION)

plan: Callable[[Buffer, int, Sample, int, Bounds, int], Plan | None] = (
    _text_commits.plan if KERNEL == "c" else _python_plan
)
"""(received bytes, number of those in the frame, sample, committed offset, bounds, characters that the metadata may
have). None if the commit is uncommon.

If the sample has a frame, the entry is that frame's, and the received one must be a whole one that differs from it in
correlation id and metadata only.
"""

merge_repeated: Callable[[bytes, bytes, Bounds, Plan], bool] = (
    _text_commits.merge_repeated if KERNEL == "c" else _python_merge_repeated
)
"""(response, sample, bounds, plan). Apply the plan if the response differs from the sample, the response to an accepted
commit, in its correlation id only. Otherwise return False.
"""
