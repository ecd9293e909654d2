"""Plans are served only if every hash is in exactly one of their ranges."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kafka_share_proxy.views.model.plans import HASH_SPACE, BadPlan, Plan, read


def file(ranges: object, **more: object) -> str:
    return json.dumps({"version": 1, "topic": "orders", "hash": "murmur2-32", "ranges": ranges} | more)


def test_the_planners_file_is_read() -> None:
    """Weights and what else it says are for people."""
    text = file([[0, 100, 0.5], [100, 7000, 0.2], [7000, HASH_SPACE, 0.3]], n=3, bound=[1.02, 0.4], made_from={})
    assert read("hot", text) == Plan("hot", (0, 100, 7000), "orders")
    assert read("hot", text).slots == 3


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([[0, 100], [101, HASH_SPACE]], "hashes 100 to 100 are in no range"),
        ([[0, 100], [99, HASH_SPACE]], "begins at 99"),
        ([[1, 100], [100, HASH_SPACE]], "hashes 0 to 0 are in no range"),
        ([[0, 100], [100, HASH_SPACE - 1]], "hashes 4294967295 to 4294967295 are in none"),
        ([[0, 100], [100, 100], [100, HASH_SPACE]], r"ranges\[1\]: \[100, 100\) is empty"),
        ([[0, 100], [100, HASH_SPACE + 1]], "no integer"),
        ([[0, 100], [100, HASH_SPACE], [0, HASH_SPACE]], "begins at 0"),
        ([[0, 1.5], [1.5, HASH_SPACE]], "no integer"),
        ([[0, True], [1, HASH_SPACE]], "no integer"),
        ([[0], [0, HASH_SPACE]], r"ranges\[0\]"),
        ([[0, 1, 1, 1], [1, HASH_SPACE]], r"ranges\[0\]"),
        ([7, 8], r"ranges\[0\]"),
        ([[0, HASH_SPACE]], "2 to 1024 ranges"),
        ([[n, n + 1] for n in range(1024)] + [[1024, HASH_SPACE]], "2 to 1024 ranges"),
        ([], "missing"),
        ({"0": 1}, "missing"),
        (None, "missing"),
    ],
)
def test_ranges_that_are_not_the_hash_space_exactly_once_are_refused(ranges: object, message: str) -> None:
    """With what is wrong and where."""
    with pytest.raises(BadPlan, match=message):
        read("hot", file(ranges))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "object"),
        (file([[0, 1], [1, HASH_SPACE]], version=2), "version"),
        (file([[0, 1], [1, HASH_SPACE]], version=True), "version"),
        (file([[0, 1], [1, HASH_SPACE]], hash="crc32"), "hash"),
        (file([[0, 1], [1, HASH_SPACE]], n=3), "n: 3"),
        ('"' + "x" * (1 << 20) + '"', "larger"),
        (b"\xff\xfe\x00", "no JSON"),
    ],
)
def test_an_invalid_plan_is_refused(text: str | bytes, message: str) -> None:
    """Any bytes."""
    with pytest.raises(BadPlan, match=message):
        read("hot", text)


def test_a_plan_that_cannot_be_part_of_a_topic_name_is_refused() -> None:
    """Its id is part of the view's name."""
    with pytest.raises(BadPlan, match="named"):
        Plan("a.b", (0, 1))


@pytest.mark.parametrize("starts", [(1, 2), (0, 0), (0, 2, 1), (0, HASH_SPACE), (0,)])
def test_a_plan_that_does_not_cover_the_hash_space_is_refused(starts: tuple[int, ...]) -> None:
    """Also those stored by foreign writers."""
    with pytest.raises(BadPlan):
        Plan("hot", starts)


@pytest.mark.parametrize(
    ("entries", "weights"),
    [
        ([0.25, 0.75], (0.25, 0.75)),
        ([1, 0], (1.0, 0.0)),
        ([0, 0], ()),
        ([-1, 2], ()),
        (["much", 1], ()),
        ([True, 1], ()),
        ([float("nan"), 1], ()),
        ([10**400, 1], ()),
    ],
)
def test_weights_are_kept_if_every_range_has_a_usable_one(entries: list[Any], weights: tuple[float, ...]) -> None:
    ranges = [[0, 9, entries[0]], [9, 1 << 32, entries[1]]]
    assert read("hot", json.dumps({"version": 1, "ranges": ranges})).weights == weights
    assert read("hot", json.dumps({"version": 1, "ranges": [[0, 9], ranges[1]]})).weights == ()
