"""The text of ranges: read, written canonical, and refused with the piece that is wrong."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka_share_proxy.offsets.commit_text import (
    PIECE_MAX,
    CommitText,
    CommitTextError,
    MalformedCommitText,
    TooManyRanges,
    UnknownCommitTextVersion,
    commit_text_version,
    fit_commit_text,
    parse_commit_text,
    split_commit_text,
    write_commit_text,
)
from kafka_share_proxy.offsets.ranges import OFFSET_MAX, OffsetRanges, OffsetSpan

SPANS = st.tuples(st.integers(0, OFFSET_MAX), st.integers(1, 9)).map(
    lambda pair: (pair[0], min(pair[0] + pair[1], OFFSET_MAX + 1))
)
HALF_OPEN = SPANS.filter(lambda span: span[1] <= OFFSET_MAX)
USER_TEXTS = st.none() | st.text().filter(lambda text: not text.endswith("\0"))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("ic/1;43-45,48-49", "ic/1;43-45,48-49"),
        ("ic/1;48-49,43-45", "ic/1;43-45,48-49"),
        ("ic/1;46-47,43-45,44-44", "ic/1;43-47"),
        ("ic/1;", "ic/1;"),
        ("ic/1;\0", "ic/1;"),
        ("ic/1;43-45\0", "ic/1;43-45"),
        ("ic/1;0043-045", "ic/1;43-45"),
        ("ic/1;43-45;pr=190-200,70-120,120-130", "ic/1;43-45;pr=190-200,70-120,120-130"),
        ("ic/1;;pr=70-120", "ic/1;;pr=70-120"),
        ("ic/1;;u=", "ic/1;;u="),
        ("ic/1;43-45;u=mine;pr=1-2;u=more,\0x", "ic/1;43-45;u=mine;pr=1-2;u=more,\0x"),
        ("ic/1;43-45;pr=70-120;u=ic/1;1-2\0", "ic/1;43-45;pr=70-120;u=ic/1;1-2"),
        (f"ic/1;{OFFSET_MAX}-{OFFSET_MAX}", f"ic/1;{OFFSET_MAX}-{OFFSET_MAX}"),
    ],
)
def test_a_text_is_written_canonical(text: str, canonical: str) -> None:
    assert str(parse_commit_text(text)) == canonical
    assert str(parse_commit_text(canonical)) == canonical


def test_a_text_has_three_parts() -> None:
    read = parse_commit_text("ic/1;48-49,43-45;pr=70-120;u=mine")
    assert (list(read.ranges), read.catch_up, read.user_text) == ([(43, 46), (48, 50)], ((70, 120),), "mine")
    assert parse_commit_text("ic/1;") == CommitText(OffsetRanges(), (), None)
    assert write_commit_text([(48, 50), (43, 46)], [(70, 120)], "mine") == "ic/1;43-45,48-49;pr=70-120;u=mine"
    assert write_commit_text() == str(CommitText()) == "ic/1;"


@settings(deadline=None)
@given(st.lists(SPANS, max_size=9), st.lists(HALF_OPEN, max_size=3), USER_TEXTS)
def test_a_written_text_is_parsed_to_the_same_content(spans: list, catch_up: list, user_text: str | None) -> None:
    read = parse_commit_text(write_commit_text(spans, catch_up, user_text))
    assert read == CommitText(OffsetRanges(spans), tuple(catch_up), user_text)


@pytest.mark.parametrize(
    ("metadata", "version"),
    [
        ("ic/1;", 1), ("ic/1;nonsense", 1), ("ic/2;43-45", 2), ("ic/17;", 17), (None, None), ("", None), ("ic/1", None),
        ("ic/01;", None), ("ic/0;", None), ("IC/1;", None), (" ic/1;", None), ("ic/x;", None), ("mine", None),
    ],
)  # fmt: skip
def test_only_the_exact_prefix_makes_a_text_of_ranges(metadata: str | None, version: int | None) -> None:
    assert commit_text_version(metadata) == version


WRONG = [
    ("ic/1;43", "'43' is no range: write first-last, as in 43-45"),
    ("ic/1;43-45,", "'' is no range"),
    ("ic/1;43-45 ,48-49", "'43-45 ' is no range"),
    ("ic/1;43-45\n", "is no range"),
    ("ic/1;4_3-45", "'4_3-45' is no range"),
    ("ic/1;٤-٥", "is no range"),
    ("ic/1;43-45,49-48,50-51", "'49-48' begins after its end: write first-last"),
    ("ic/1;-5-3", "'-5-3' has a negative offset: offsets begin at 0"),
    ("ic/1;3--5", "'3--5' has a negative offset"),
    (f"ic/1;1-2,3-{OFFSET_MAX + 1}", f"'3-{OFFSET_MAX + 1}' goes beyond the largest offset, {OFFSET_MAX}"),
    (f"ic/1;3-{10**40}", "goes beyond the largest offset"),
    ("ic/1;pr=70-120", "'pr=70-120' is not a list of ranges, which may be empty: write 'ic/1;;...'"),
    ("ic/1;u=mine", "'u=mine' is not a list of ranges"),
    ("ic/1;43-45;pr=", "'pr=' names no ranges: leave it out"),
    ("ic/1;43-45;pr=70-70", "'70-70' after 'pr=' contains no offset: write start-end"),
    ("ic/1;43-45;pr=70-120,x", "'x' is no range"),
    ("ic/1;43-45;pr=70-120;pr=1-2", "'pr=1-2' follows 'pr='"),
    ("ic/1;43-45;", "'' is neither 'pr=' nor 'u=': put your own text after ';u='"),
    ("ic/1;43-45;note", "'note' is neither 'pr=' nor 'u='"),
    ("mine", "'mine' does not begin with 'ic/1;'"),
]


@pytest.mark.parametrize(("text", "says"), WRONG, ids=[text[:20] for text, _ in WRONG])
def test_a004_15_a_malformed_text_is_refused_with_the_piece(text: str, says: str) -> None:
    with pytest.raises(MalformedCommitText) as raised:
        parse_commit_text(text)
    assert says in str(raised.value)


def test_a004_15_another_version_is_reported_to_be_one() -> None:
    with pytest.raises(UnknownCommitTextVersion, match=r"'ic/2;43-45' has version 2: write version 1"):
        parse_commit_text("ic/2;43-45")


def test_a004_15_more_ranges_than_the_cap_are_counted_and_not_read() -> None:
    at_the_cap = "ic/1;" + ",".join(f"{n}-{n}" for n in range(0, 200, 2))
    assert len(parse_commit_text(at_the_cap, ranges_max=100).ranges) == 100
    for more in (at_the_cap + ",x", at_the_cap + ";pr=7-9"):
        with pytest.raises(TooManyRanges, match="101 ranges are more than 100: finish the oldest records first"):
            parse_commit_text(more, ranges_max=100)


def test_errors_are_value_errors_of_bounded_length() -> None:
    for text in ("ic/1;" + "x" * 10**6, "ic/2;" + "x" * 10**6, "x" * 10**6, "ic/1;" + "1" * 10**6):
        with pytest.raises(CommitTextError) as raised:
            parse_commit_text(text)
        assert isinstance(raised.value, ValueError)
        assert PIECE_MAX < len(str(raised.value)) < PIECE_MAX + 120


@pytest.mark.parametrize(
    "text",
    ["1" * 300_000, "1-" * 150_000, "-" * 300_000, "1-2," * 75_000, "," * 300_000, "1-2" * 100_000, ";" * 300_000],
)
def test_the_work_is_bounded_by_the_length_of_the_text(text: str) -> None:
    """A third of a megabyte of anything is refused immediately: the grammar never goes back over what it has read."""
    began = time.thread_time()
    for tried in (f"ic/1;{text}", f"ic/1;1-2;pr={text}"):
        with pytest.raises(CommitTextError):
            parse_commit_text(tried, ranges_max=10**6)
    assert time.thread_time() - began < 1.0


@settings(deadline=None)
@given(st.text(alphabet="0123456789-,;=pru\0 ", max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        read = parse_commit_text("ic/1;" + text)
    except CommitTextError:
        return
    assert parse_commit_text(str(read)) == read


# Texts that are too long


@given(st.lists(SPANS, max_size=60), USER_TEXTS, st.integers(60, 400))
@example([(10**17, 10**17 + 1)], "0\x80\x80\U00010000\U00010000", 60)
def test_a_split_text_has_every_range_once_and_all_tokens_in_each_piece(
    spans: list[tuple[int, int]], user_text: str | None, bytes_max: int
) -> None:
    text = CommitText(OffsetRanges(spans), (OffsetSpan(1, 5),), user_text and user_text[:5].rstrip("\0"))
    alone = [write_commit_text([span], text.catch_up, text.user_text).encode() for span in text.ranges]
    if any(len(each) > bytes_max for each in alone):
        with pytest.raises(ValueError, match=r"needs \d+ more"):
            split_commit_text(text, bytes_max)
        return
    pieces = split_commit_text(text, bytes_max)
    assert all(len(each.encode()) <= bytes_max for each in pieces)
    read = [parse_commit_text(each) for each in pieces]
    assert [span for each in read for span in each.ranges] == list(text.ranges)
    assert {(each.catch_up, each.user_text) for each in read} == {(text.catch_up, text.user_text)}


@given(st.lists(SPANS, max_size=60), st.integers(60, 400))
def test_a_fitted_text_and_the_ranges_left_out_are_all_ranges(
    spans: list[tuple[int, int]], characters_max: int
) -> None:
    text = CommitText(OffsetRanges(spans), (), None)
    fitted, left_out = fit_commit_text(text, characters_max)
    assert len(fitted) <= characters_max
    fitted_ranges = list(parse_commit_text(fitted).ranges)
    assert sorted([*fitted_ranges, *left_out]) == list(text.ranges)
    widths = [end - start for start, end in fitted_ranges]
    assert not fitted_ranges or not left_out or min(widths) >= max(end - start for start, end in left_out)


def test_tokens_that_have_no_room_are_an_error() -> None:
    text = CommitText(OffsetRanges([(3, 4)]), (), "x" * 100)
    with pytest.raises(ValueError, match="user_text and catch_up alone"):
        fit_commit_text(text, 50)
    with pytest.raises(ValueError, match="user_text and catch_up alone"):
        split_commit_text(text, 50)
