"""Output of the command `dead-letters`; at real brokers see tests/stock."""

from __future__ import annotations

import pytest
from kafka_share_proxy.app.commands.dead_letters_command import as_row, as_values, conditions_of, sentences
from kafka_share_proxy.sharegroups.dead_letters.letter_log import BadCondition, StoredLetter
from kafka_share_proxy.sharegroups.dead_letters.redrive import Redriven
from kafka_share_proxy.wire.records.records import Record
from kafka_share_proxy.wire.values import TopicPartition

LETTER = StoredLetter(
    TopicPartition("dlq.t", 1), Record(b"k", None, (), 7, 9), "t", 3, 42, 5, "Offset rejected by client."
)


def test_json_is_the_one_that_programs_read() -> None:
    assert as_values(LETTER) == {
        "topic": "t",
        "partition": 3,
        "offset": 42,
        "deliveries": 5,
        "error": "Offset rejected by client.",
        "written_ms": 7,
        "at": {"topic": "dlq.t", "partition": 1, "offset": 9},
        "key": "k",
        "is_copied": True,
    }


def test_a_row_names_the_letter_and_its_source() -> None:
    assert as_row(LETTER) == ("dlq.t-1:9", "t-3:42", "5", "Offset rejected by client.", "k")


def test_the_result_says_what_was_moved_and_what_stays() -> None:
    totals = Redriven({"b": 2, "a": 1}, missing=3, not_chosen=4)
    assert sentences(totals, is_dry=False) == [
        "1 dead letters were redriven to a",
        "2 dead letters were redriven to b",
        "3 stay: they have no key and value, and their records no longer exist",
        "4 stay: --where excludes them",
    ]
    assert sentences(Redriven(), is_dry=True) == ["no dead letters would be redriven"]


def test_a_wrong_condition_is_refused() -> None:
    with pytest.raises(BadCondition):
        conditions_of(["topic=t", "wrong"])
