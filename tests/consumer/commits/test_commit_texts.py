"""The texts in which a commit of many ranges is sent."""

from __future__ import annotations

import pytest
from kafka_share_proxy.consumer.commits.commit_texts import STRING_MAX, CommitTexts
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.offsets.commit_text import parse_commit_text, write_commit_text
from kafka_share_proxy.offsets.ledger import BROKER_METADATA_MAX
from kafka_share_proxy.offsets.ranges import OffsetSpan


def ranges(first: int, count: int) -> list[OffsetSpan]:
    return [OffsetSpan(first + 2 * n, first + 2 * n + 1) for n in range(count)]


def commit(spans: list[OffsetSpan], user_text: str | None = None, offset: int = 0) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, write_commit_text(spans, (), user_text))


MANY = ranges(10_001, 4000)


@pytest.mark.parametrize(
    "text", ["", "of the user", "x" * 9000, "ic/1;3-4", "ic/9;" + "1" * 9000, "ic/1;" + "x" * 9000]
)
def test_any_other_text_is_sent_as_it_is(text: str) -> None:
    texts = CommitTexts(OffsetAndMetadata(1, text), is_limited=True)
    assert (texts.current, texts.left_out, texts.needs_check) == (text, (), False)
    assert not texts.shorten()
    assert texts.advance()


def test_several_texts_carry_all_ranges_and_the_text_of_the_user() -> None:
    texts = CommitTexts(commit(MANY, "mine"), is_limited=False)
    parsed, is_last = [], False
    while not is_last:
        assert len(texts.current) <= STRING_MAX
        parsed.append(parse_commit_text(texts.current))
        is_last = texts.advance()
    assert texts.needs_check
    assert [span for each in parsed for span in each.ranges] == MANY
    assert {each.user_text for each in parsed} == {"mine"}


def test_a_limited_partition_begins_with_what_brokers_accept() -> None:
    texts = CommitTexts(commit(MANY), is_limited=True)
    assert len(texts.current) <= BROKER_METADATA_MAX
    assert sorted([*parse_commit_text(texts.current).ranges, *texts.left_out]) == MANY
    assert texts.shorten()
    assert (texts.current, list(texts.left_out)) == ("ic/1;", MANY)
    assert not texts.shorten()


def test_committed_metadata_show_whether_the_broker_added_up_the_texts() -> None:
    texts = CommitTexts(commit(MANY), is_limited=False)
    texts.check_stored(commit(MANY[:3000]))
    assert list(texts.left_out) == [], "a string shows the first ranges"
    texts.check_stored(commit(MANY[3000:], offset=MANY[0].end))
    assert list(texts.left_out) == [], "the first range touched the offset"
    texts.check_stored(commit(MANY[3000:]))
    assert list(texts.left_out) == MANY[:3000]
    texts.check_stored(None)
    assert list(texts.left_out) == MANY


def test_tokens_that_have_no_room_are_an_error() -> None:
    with pytest.raises(ValueError, match="user_text and catch_up alone"):
        CommitTexts(commit(MANY, "x" * 40_000), is_limited=False)
