"""Checks of one option by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest
from kafka_share_proxy.consumer.option_checks import (
    FROM_0,
    SECONDS_MAX,
    TIME_ABOVE_0,
    Range,
    matches,
    mistakes,
    names,
    option,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    wait_s: float = option(1.0, "wait.ms", TIME_ABOVE_0)
    limit: int | None = option(None, "limit", FROM_0)
    mode: Literal["a", "b"] = "a"


@pytest.mark.parametrize("options", [Options(), Options(wait_s=1, limit=0), Options(wait_s=SECONDS_MAX, limit=None)])
def test_valid_options_have_no_mistake(options: Options) -> None:
    assert mistakes(options) == []


def test_each_mistake_names_the_option_its_value_and_what_is_accepted() -> None:
    assert mistakes(Options(wait_s=0.0, limit=-1)) == [
        "wait_s=0.0: wait.ms must be above 0",
        "limit=-1: must be 0 or more",
    ]
    assert mistakes(Options(wait_s=1e9)) == ["wait_s=1000000000.0: wait.ms must be at most 2147484"]
    assert mistakes(Options(mode=3)) == [  # type: ignore[arg-type]
        "mode=3: a str is needed, this is an int"
    ]


def test_names_are_those_of_the_fields() -> None:
    assert names(Options) == ("wait_s", "limit", "mode")


@pytest.mark.parametrize(
    ("value", "hint", "fits"),
    [
        (1, float, True),
        (True, float, False),
        (True, int, False),
        (float("nan"), float, False),
        (None, int | None, True),
        (["a"], tuple[str, ...], True),
        ("a", tuple[str, ...], False),
        ([1], tuple[str, ...], False),
        (print, callable, True),
        (1, callable, False),
    ],
)
def test_an_int_is_a_float_a_bool_is_no_number_and_a_list_is_a_tuple(value: object, hint: object, fits: bool) -> None:
    assert matches(value, hint) is fits


def test_a_range_names_the_bound_that_a_value_exceeds() -> None:
    assert Range(above=0).wrong(1) == ""
    assert Range(least=2, most=3).wrong(4) == "must be at most 3"
