"""Rules for changes by an acknowledgement (SharePartition.acknowledge of Kafka 4.3).

Rules: sharegroups/README.md rules 39-43 and 46-49. First everything is checked without changing anything: the batches
become a plan of steps, one per run of offsets with one acknowledge type. If all of them are possible, the steps are
marked as one transition; otherwise the whole partition is refused. Renewals are neither stored nor undone: those
planned before a refused step are performed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from kafka_share_proxy.sharegroups.model.acquiring import PartitionSettings
from kafka_share_proxy.sharegroups.model.offset_runs import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    UNREAD,
    LockIndex,
    OffsetRun,
    Transition,
    Window,
)
from kafka_share_proxy.sharegroups.model.renewal import RenewalBound
from kafka_share_proxy.wire.errors import ErrorCode

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""Acknowledge types on the wire (AcknowledgeType; 4 since KIP-1222)."""

_TYPES = bytes([GAP, ACCEPT, RELEASE, REJECT])
_RENEW_TYPES = bytes([GAP, ACCEPT, RELEASE, REJECT, RENEW])
_NO_TYPE = b"\xff"
_EQUAL_TYPES = re.compile(rb"(?s)(.)\1*")

AcknowledgementBatch = tuple[int, int, Sequence[int]]
"""First offset, last offset, and one type for all or one per offset."""


class Refusal(NamedTuple):
    """Failed acknowledgement, with the error code for the whole partition."""

    error: ErrorCode
    message: str
    by_bound: bool = False
    """True if the group's own bound forbids a renewal (`renewal`) that Kafka would grant."""


Step = tuple[OffsetRun, int, int, int]
"""(run, first, last, type): offsets first..last, all inside the run, get one acknowledge type."""


_run_of = itemgetter(0)


def check_shape(batches: Sequence[AcknowledgementBatch], renew_allowed: bool) -> Refusal | None:
    """Check what does not depend on state (sharegroups/README.md rule 40).

    `renew_allowed`: version 2 or later, and IsRenewAck.
    """
    allowed = _RENEW_TYPES if renew_allowed else _TYPES
    last_before = -1
    for first, last, types in batches:
        if len(types) == 1 and last_before <= first <= last and GAP <= types[0] < len(allowed):
            last_before = last
            continue
        if first > last or first < last_before:
            return _invalid(f"batch {first}-{last} is reversed, or begins before the one in front of it ends")
        if not types:
            return _invalid(f"batch {first}-{last} has no acknowledge types")
        if len(types) != 1 and len(types) != last - first + 1:
            return _invalid(f"batch {first}-{last} has {len(types)} acknowledge types")
        if not (GAP <= types[0] < len(allowed)) or (len(types) > 1 and _encoded(types).translate(None, allowed)):
            return _invalid(f"batch {first}-{last} has an acknowledge type that is not allowed here")
        last_before = last
    return None


def decide(
    window: Window,
    index: LockIndex,
    member_id: str,
    batches: Sequence[AcknowledgementBatch],
    settings: PartitionSettings,
    now: float,
    bound: RenewalBound | None = None,
) -> Transition | Refusal:
    """Check well-formed batches against the window (sharegroups/README.md rule 41) and mark the changes."""
    steps: list[Step] = []
    refusal = None
    for batch in batches:
        refusal = _plan(window, member_id, batch, settings.renew_enabled, steps)
        if refusal is not None:
            break
    if bound is not None:
        steps, refusal = _bounded(steps, refusal, bound, now)
    if refusal is not None:
        steps = [step for step in steps if step[3] == RENEW]
    is_cut = _cut(window, steps)
    planned: list[OffsetRun] = []
    acknowledge_types: list[int] = []
    limit = settings.delivery_count_limit
    for run, first, last, acknowledge_type in steps:
        for part in list(window.between(first, last)) if is_cut else (run,):
            if acknowledge_type == RENEW:
                index.renew(part, settings.lock_duration_s, now)
                part.renewals += 1
            else:
                is_accepted = acknowledge_type == ACCEPT
                part.target = ACKNOWLEDGED if is_accepted else _target(window, acknowledge_type, part.count, limit)
                planned.append(part)
                acknowledge_types.append(acknowledge_type)
    if refusal is not None:
        return refusal
    transition = plan(planned)
    transition.acknowledge_types = acknowledge_types
    return transition


def _bounded(
    steps: list[Step], refusal: Refusal | None, bound: RenewalBound, now: float
) -> tuple[list[Step], Refusal | None]:
    """Stop before the first renewal that the bound forbids."""
    for index, (run, _, _, acknowledge_type) in enumerate(steps):
        message = bound.refusal_of(run, now) if acknowledge_type == RENEW else None
        if message is not None:
            return steps[:index], Refusal(ErrorCode.INVALID_RECORD_STATE, message, by_bound=True)
    return steps, refusal


def _cut(window: Window, steps: Sequence[Step]) -> bool:
    """Cut the runs where the steps begin and end. Each run is cut once, regardless of its number of steps.

    Return False if each step was a whole run already.
    """
    if all(run.first == first and run.last == last for run, first, last, _ in steps):
        return False
    for run, steps_of_run in groupby(steps, key=_run_of):
        offsets: set[int] = set()
        for _, first, last, _ in steps_of_run:
            offsets.update((first, last + 1))
        offsets -= {run.first, run.last + 1}
        if offsets:
            window.cut(window.index_from(run.first), sorted(offsets))
    return True


def plan(runs: list[OffsetRun]) -> Transition:
    """Create one transition for `runs`, whose targets are set."""
    transition = Transition(runs)
    for run in runs:
        run.pending = transition
    return transition


def _target(window: Window, acknowledge_type: int, count: int, delivery_count_limit: int) -> int:
    if acknowledge_type == RELEASE:
        return window.freed_state(count, delivery_count_limit)
    return window.rejected_state() if acknowledge_type == REJECT else ARCHIVED


def _plan(
    window: Window, member_id: str, batch: AcknowledgementBatch, renew_enabled: bool, steps: list[Step]
) -> Refusal | None:
    """Add the steps of one batch. Stop at the first impossible one."""
    first, last, types = batch
    if last < window.start_offset:
        return None
    if len(types) > 1 and types.count(types[0]) == len(types):
        types = types[:1]  # a uniform array means the same as one type
    if len(types) == 1 and types[0] != RENEW and (not steps or steps[-1][2] < first):
        # Fast path: the batch is exactly what one fetch acquired.
        run = window.run_at(first)
        if run is not None and run.last == last and run.owner == member_id and run.pending is None:
            steps.append((run, first, last, types[0]))
            return None
    refusal = _check_bounds(window, first, last)
    if refusal is not None:
        return refusal
    if len(types) == 1:
        return _plan_type(window, member_id, (first, last, types[0]), renew_enabled, steps)
    # Group the array into runs of equal types before any look-up: a search per offset would be slow.
    for equal in _EQUAL_TYPES.finditer(bytes(types)):
        span = (first + equal.start(), first + equal.end() - 1, types[equal.start()])
        refusal = _plan_type(window, member_id, span, renew_enabled, steps)
        if refusal is not None:
            return refusal
    return None


def _check_bounds(window: Window, first: int, last: int) -> Refusal | None:
    """Refuse a batch that is outside the tracked offsets. Holes inside it are not an error and are ignored."""
    lowest = next((run.first for run in window.runs if run.state != UNREAD), None)
    if (lowest is None or lowest > first) and not first < window.start_offset <= last:
        return Refusal(ErrorCode.INVALID_RECORD_STATE, f"nothing is tracked at offset {first}")
    below = window.index_from(last)
    if below == len(window.runs) or window.runs[below].first > last:
        return _invalid(f"batch {first}-{last} goes beyond what was acquired")
    if window.runs[below].state == UNREAD:
        return _invalid(f"batch {first}-{last} goes beyond what was acquired")
    return None


def _plan_type(
    window: Window, member_id: str, span: tuple[int, int, int], renew_enabled: bool, steps: list[Step]
) -> Refusal | None:
    first, last, acknowledge_type = span
    first = max(first, window.start_offset)
    if first > last:
        return None
    if steps and steps[-1][2] == first:
        # Two batches may meet in one offset (sharegroups/README.md rule 40). Only a renewal followed by another type is
        # valid there.
        if steps[-1][3] != RENEW:
            return Refusal(ErrorCode.INVALID_RECORD_STATE, f"offset {first} is acknowledged twice")
        steps.append((steps[-1][0], first, first, acknowledge_type))
        first += 1
        if first > last:
            return None
    for run in window.between(first, last):
        if run.state == UNREAD:
            continue
        refusal = _check_run(run, member_id)
        if refusal is not None:
            return refusal
        if acknowledge_type == RENEW and not renew_enabled:
            return Refusal(ErrorCode.INVALID_RECORD_STATE, "renewing acquisition locks is not enabled for the group")
        steps.append((run, max(first, run.first), min(last, run.last), acknowledge_type))
    return None


def _check_run(run: OffsetRun, member_id: str) -> Refusal | None:
    if run.state != ACQUIRED:
        return Refusal(ErrorCode.INVALID_RECORD_STATE, f"offset {run.first} is not acquired")
    if run.pending is not None:
        return Refusal(ErrorCode.INVALID_RECORD_STATE, f"offset {run.first} is being acknowledged already")
    if run.owner != member_id:
        return Refusal(ErrorCode.INVALID_RECORD_STATE, f"offset {run.first} is held by another member")
    return None


def _encoded(types: Sequence[int]) -> bytes:
    """Encode the types as unsigned bytes. A type outside 0-255 is replaced by 255, which is invalid as well."""
    try:
        return bytes(types)
    except ValueError:
        return _NO_TYPE


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)
