"""Records of a topic for dead letters, as dead letters of one group; at real brokers see tests/stock."""

from __future__ import annotations

import pytest
from kafka_share_proxy.sharegroups.dead_letters.letter_log import BadCondition, Condition, letter_in
from kafka_share_proxy.sharegroups.dead_letters.letter_records import LetterSource, letter_of
from kafka_share_proxy.sharegroups.model.dead_letters import DeadLetter
from kafka_share_proxy.wire.records.records import Record
from kafka_share_proxy.wire.values import TopicPartition

PLACE = TopicPartition("dlq.t", 1)
LETTER = letter_of(
    LetterSource("g", "t", 3), DeadLetter(42, 5, is_rejected=True), Record(b"k"), now_ms=7, copies_headers=False
)


def test_a_dead_letter_is_read_back_as_it_was_written() -> None:
    read = letter_in(PLACE, LETTER, "g")
    assert read is not None
    assert read[2:] == ("t", 3, 42, 5, "Offset rejected by client.")
    assert read.is_copied


@pytest.mark.parametrize(
    "record",
    [Record(b"k", b"v"), LETTER._replace(headers=LETTER.headers[:2]), LETTER._replace(headers=())],
    ids=["other record", "without offset", "without headers"],
)
def test_other_records_in_the_topic_are_no_dead_letters(record: Record) -> None:
    assert letter_in(PLACE, record, "g") is None


def test_dead_letters_of_other_groups_are_left_out() -> None:
    assert letter_in(PLACE, LETTER, "h") is None


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("error=rejected", True),
        ("error=exhausted", False),
        ("error=Offset rejected by client.", True),
        ("topic=t", True),
        ("partition=3", True),
        ("offset=41", False),
        ("deliveries=5", True),
    ],
)
def test_conditions_compare_a_field(condition: str, holds: bool) -> None:
    read = letter_in(PLACE, LETTER, "g")
    assert read is not None
    assert Condition.parse(condition).holds(read) == holds


@pytest.mark.parametrize("text", ["error", "cause=x", "", "=rejected"])
def test_an_unknown_condition_is_refused(text: str) -> None:
    with pytest.raises(BadCondition, match="error=rejected"):
        Condition.parse(text)
