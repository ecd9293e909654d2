"""Division of a base partition into slots (views/README.md rules 4 to 6)."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import accumulate, chain, pairwise
from typing import NamedTuple, Protocol

from kafka_share_proxy.wire import kernels
from kafka_share_proxy.wire.key_filter import KEYS_MAX, RANGES_MAX, NullKeys
from kafka_share_proxy.wire.records.key_hash import SPACE, hash_of_record, murmur2

try:
    from kafka_share_proxy.views.kernel import _slicing
except ImportError:  # there was no compiler at installation
    _slicing = None  # type: ignore[assignment]

KERNEL = kernels.choose("views.kernel._slicing", _slicing, 3)
SLOTS_MAX = 1024
"""Maximum number of slots. The kernel has a row of counters for each."""
STRIPE_OFFSETS = 64
"""Number of adjacent offsets in one stripe."""
NOWHERE = -1
"""Slot of records that a filter drops."""


class Rule(IntEnum):
    """Rules by which the kernel assigns a record to a slot."""

    EVEN = 0
    STRIPES = 1
    RANGES = 2


class Packed(NamedTuple):
    """A cut for the kernel. Arrays have native byte order."""

    rule: int
    slots: int
    starts: bytes = b""
    """Start of each range, as uint32."""
    targets: bytes = b""
    """Slot of each range as int32."""
    null_keys: int = NullKeys.BY_OFFSET
    key_index: bytes = b""
    """Single keys of slot 0, sorted: hash, position in `key_bytes`, length, as uint32."""
    key_bytes: bytes = b""


class Cut(Protocol):
    """A rule that assigns every record to one slot, or to none."""

    @property
    def slots(self) -> int: ...

    @property
    def packed(self) -> Packed: ...

    def slot_of(self, key: bytes | None, offset: int) -> int: ...


@dataclass(frozen=True, slots=True)
class EvenCut:
    """Equal ranges of the hash space (`__view.r<R>`)."""

    slots: int
    packed: Packed = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_slots(self.slots)
        object.__setattr__(self, "packed", Packed(Rule.EVEN, self.slots))

    def slot_of(self, key: bytes | None, offset: int) -> int:
        """See views/README.md rule 4."""
        return hash_of_record(key, offset) * self.slots >> 32


@dataclass(frozen=True, slots=True)
class StripeCut:
    """Alternating stripes of 64 offsets (`__view.s<R>`), for records without useful keys."""

    slots: int
    packed: Packed = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_slots(self.slots)
        object.__setattr__(self, "packed", Packed(Rule.STRIPES, self.slots))

    def slot_of(self, key: bytes | None, offset: int) -> int:  # noqa: ARG002 - the offset alone decides
        return offset // STRIPE_OFFSETS % self.slots


@dataclass(frozen=True, slots=True)
class RangeCut:
    """Ranges of a stored plan. Range i belongs to slot targets[i], or i."""

    starts: tuple[int, ...]
    targets: tuple[int, ...] = ()
    slots: int = field(init=False)
    packed: Packed = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_starts(self.starts)
        targets = self.targets or tuple(range(len(self.starts)))
        if len(targets) != len(self.starts) or min(targets) < 0:
            raise ValueError("every range of a plan belongs to one slot")
        slots = max(targets) + 1
        _check_slots(slots)
        object.__setattr__(self, "targets", targets)
        object.__setattr__(self, "slots", slots)
        object.__setattr__(self, "packed", Packed(Rule.RANGES, slots, _uint32(self.starts), _int32(targets)))

    def slot_of(self, key: bytes | None, offset: int) -> int:
        return self.targets[bisect_right(self.starts, hash_of_record(key, offset)) - 1]


@dataclass(frozen=True, slots=True)
class KeyFilterCut:
    """Cut of a `KeyFilter` field, with one slot.

    Ranges are (first, last), both inclusive, in any order. Raises ValueError.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    keys: tuple[bytes, ...] = ()
    null_keys: NullKeys = NullKeys.DROP
    packed: Packed = field(init=False, repr=False, compare=False)
    _known: frozenset[bytes] = field(init=False, repr=False, compare=False)
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _targets: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.ranges) > RANGES_MAX or len(self.keys) > KEYS_MAX:
            raise ValueError(f"a filter has at most {RANGES_MAX} ranges and {KEYS_MAX} keys")
        starts, targets = _disjoint(self.ranges)
        index, content = _packed_keys(self.keys)
        packed = Packed(Rule.RANGES, 1, _uint32(starts), _int32(targets), NullKeys(self.null_keys), index, content)
        object.__setattr__(self, "packed", packed)
        object.__setattr__(self, "_known", frozenset(self.keys))
        object.__setattr__(self, "_starts", starts)
        object.__setattr__(self, "_targets", targets)

    @property
    def slots(self) -> int:
        return 1

    @property
    def starts_and_targets(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Starts of ranges, and for each whether it is kept: slot 0, or NOWHERE."""
        return self._starts, self._targets

    def slot_of(self, key: bytes | None, offset: int) -> int:
        if key is None and self.null_keys != NullKeys.BY_OFFSET:
            return 0 if self.null_keys == NullKeys.KEEP else NOWHERE
        if key is not None and key in self._known:
            return 0
        return self._targets[bisect_right(self._starts, hash_of_record(key, offset)) - 1]


def _check_slots(slots: int) -> None:
    if not 1 <= slots <= SLOTS_MAX:
        raise ValueError(f"{slots} slots: 1 to {SLOTS_MAX} are possible")


def _check_starts(starts: Sequence[int]) -> None:
    if not starts or starts[0] != 0 or len(starts) > RANGES_MAX:
        raise ValueError(f"1 to {RANGES_MAX} ranges, the first from 0 on, are possible")
    if starts[-1] >= SPACE or any(start >= next_start for start, next_start in pairwise(starts)):
        raise ValueError("the starts of ranges ascend and lie below 2^32")


def _disjoint(ranges: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return starts of ranges that cover the hash space, and the target of each: slot 0, or NOWHERE between them."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if not 0 <= first <= last < SPACE:
            raise ValueError(f"{first} to {last} is no range of the hash space")
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    parts, end = [], 0
    for first, last in merged:
        parts += [(end, NOWHERE), (first, 0)] if first > end else [(first, 0)]
        end = last + 1
    parts += [(end, NOWHERE)] if end < SPACE else []
    return tuple(start for start, _ in parts), tuple(target for _, target in parts)


def _packed_keys(keys: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Return `Packed.key_index` and `Packed.key_bytes`."""
    ordered = sorted(set(keys))
    sizes = list(map(len, ordered))
    positions = accumulate(sizes, initial=0)
    entries = sorted(zip(hashes(ordered), positions, sizes, strict=False))
    return _uint32(list(chain.from_iterable(entries))), b"".join(ordered)


def _python_hashes(keys: list[bytes]) -> bytes:
    return _uint32(list(map(murmur2, keys)))


_hashes = _slicing.hashes if KERNEL == "c" else _python_hashes


def hashes(keys: list[bytes]) -> array[int]:
    """Return the uint32 hash of each key (murmur2)."""
    return array("I", _hashes(keys))


def _uint32(numbers: Sequence[int]) -> bytes:
    return array("I", numbers).tobytes()


def _int32(numbers: Sequence[int]) -> bytes:
    return array("i", numbers).tobytes()
