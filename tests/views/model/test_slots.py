"""Every record has one slot, and always the same."""

from __future__ import annotations

from array import array

import pytest
from kafka_share_proxy.views.model import slots as cuts
from kafka_share_proxy.views.model.slots import (
    NOWHERE,
    SLOTS_MAX,
    Cut,
    EvenCut,
    KeyFilterCut,
    NullKeys,
    RangeCut,
    StripeCut,
)
from kafka_share_proxy.wire.records.key_hash import SPACE, hash_of_record, murmur2

KEYS = [str(n).encode() for n in range(2000)]


@pytest.mark.parametrize("slots", [1, 2, 3, 8, 1000, SLOTS_MAX])
def test_even_cut_takes_the_upper_bits(slots: int) -> None:
    """slot = (murmur2(key) as uint32 * R) >> 32."""
    cut = EvenCut(slots)
    assert [cut.slot_of(key, 7) for key in KEYS] == [murmur2(key) * slots >> 32 for key in KEYS]
    assert cut.slot_of(b"21", 0) == ((-973932308 % SPACE) * slots) >> 32


def test_even_cut_is_even() -> None:
    """No slot has less than half or more than twice its share of many keys."""
    slots = [EvenCut(8).slot_of(key, 0) for key in KEYS]
    assert all(125 < slots.count(slot) < 500 for slot in range(8))


@pytest.mark.parametrize("cut", [EvenCut(8), RangeCut((0, 1 << 30, 1 << 31))])
def test_records_without_a_key_are_spread_and_those_with_an_empty_key_are_not(cut: Cut) -> None:
    """A missing key belongs to the slot of its offset; an empty key is a key like others."""
    assert {cut.slot_of(None, offset) for offset in range(500)} == set(range(cut.slots))
    assert {cut.slot_of(b"", offset) for offset in range(500)} == {cut.slot_of(b"", 0)}
    assert cut.slot_of(None, 12) == cut.slot_of((12).to_bytes(8, "big"), 99)


def test_stripes_depend_on_the_offset_alone() -> None:
    """64 offsets each, in turn."""
    cut = StripeCut(3)
    assert [cut.slot_of(b"k", offset) for offset in (0, 63, 64, 127, 128, 192, 1 << 40)] == [
        0,
        0,
        1,
        1,
        2,
        0,
        (1 << 34) % 3,
    ]


def test_ranges_of_a_plan() -> None:
    """A hash belongs to the range with the greatest start that is not above it, and that to its slot."""
    starts = (0, 5, 1 << 31, SPACE - 1)
    plan = RangeCut(starts, (2, 0, 1, 0))
    assert (plan.slots, RangeCut(starts).slots) == (3, 4)
    for key in KEYS:
        index = max(i for i, start in enumerate(starts) if start <= murmur2(key))
        assert (plan.slot_of(key, 0), RangeCut(starts).slot_of(key, 0)) == (plan.targets[index], index)


@pytest.mark.parametrize("slots", [2, 7, 16])
def test_even_ranges_of_a_plan_are_the_even_cut(slots: int) -> None:
    """Two ways to say the same."""
    plan = RangeCut(tuple(-(-(slot << 32) // slots) for slot in range(slots)))
    assert [plan.slot_of(key, 0) for key in KEYS] == [EvenCut(slots).slot_of(key, 0) for key in KEYS]


def test_a_filter_keeps_its_ranges_and_its_keys() -> None:
    """Overlapping, touching and unsorted ranges are one set; single keys are compared as bytes."""
    ranges = ((1 << 31, (1 << 31) + 99), (0, 1 << 29), (1 << 28, 1 << 30), ((1 << 30) + 1, (1 << 30) + 5))
    cut = KeyFilterCut(ranges, (b"17", b"1999", b"", b"never"))
    for key in [*KEYS, b""]:
        is_kept = key in {b"17", b"1999", b""} or any(first <= murmur2(key) <= last for first, last in ranges)
        assert cut.slot_of(key, 3) == (0 if is_kept else NOWHERE)


@pytest.mark.parametrize(("rule", "slots"), [(NullKeys.DROP, {NOWHERE}), (NullKeys.KEEP, {0})])
def test_a_filter_decides_about_records_without_a_key(rule: NullKeys, slots: set[int]) -> None:
    """All or none of them, whatever the ranges."""
    cut = KeyFilterCut(((0, 1 << 31),), (), rule)
    assert {cut.slot_of(None, offset) for offset in range(100)} == slots


def test_a_filter_may_take_records_without_a_key_by_offset() -> None:
    """Views do the same; a single key with the bytes of an offset is another thing."""
    cut = KeyFilterCut(((0, 1 << 31),), ((1).to_bytes(8, "big"),), NullKeys.BY_OFFSET)
    for offset in range(100):
        assert cut.slot_of(None, offset) == (0 if hash_of_record(None, offset) <= 1 << 31 else NOWHERE)


def test_the_whole_hash_space_may_be_kept() -> None:
    """The last hash is 2^32 - 1."""
    assert {KeyFilterCut(((0, SPACE - 1),)).slot_of(key, 0) for key in KEYS} == {0}
    assert {KeyFilterCut(((1, SPACE - 1), (0, 0))).slot_of(key, 0) for key in KEYS} == {0}


@pytest.mark.parametrize(
    "make",
    [
        lambda: EvenCut(0),
        lambda: EvenCut(SLOTS_MAX + 1),
        lambda: StripeCut(-1),
        lambda: RangeCut(()),
        lambda: RangeCut((1,)),
        lambda: RangeCut((0, 5, 5)),
        lambda: RangeCut((0, SPACE)),
        lambda: RangeCut((0, 5), (0,)),
        lambda: RangeCut((0, 5), (0, -1)),
        lambda: KeyFilterCut(((5, 4),)),
        lambda: KeyFilterCut(((0, SPACE),)),
        lambda: KeyFilterCut(((-1, 4),)),
    ],
)
def test_an_invalid_cut_is_refused(make) -> None:
    """Nothing that leaves a hash without a range, or a range without a slot, becomes a cut."""
    with pytest.raises(ValueError, match=r"."):
        make()


def test_keys_are_hashed_by_kernel_and_python_fallback_alike() -> None:
    """All of a filter in one call."""
    keys = [b"", *KEYS]
    expected = [murmur2(key) for key in keys]
    assert list(cuts.hashes(keys)) == expected
    assert array("I", cuts._python_hashes(keys)).tolist() == expected
