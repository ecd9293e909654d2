"""Dead letters have the headers of Kafka 4.4.0, and are placed by their source partition."""

from __future__ import annotations

from kafka_share_proxy.sharegroups.dead_letters.letter_records import (
    LetterSource,
    by_partition,
    letter_of,
    letter_text,
    source_headers,
)
from kafka_share_proxy.sharegroups.model.dead_letters import DeadLetter
from kafka_share_proxy.wire.records.records import Record, build_batch, bytes_max

SOURCE = LetterSource("grüppe", "orders", 7)
RECORD = Record(b"k", b"v", (("trace", b"1"), ("__dlq.errors.offset", b"3")), 5)


def test_the_headers_are_text_in_the_order_of_kafka() -> None:
    letter = letter_of(SOURCE, DeadLetter(42, 5, is_rejected=False), None, now_ms=99, copies_headers=False)
    assert letter.headers == (
        ("__dlq.errors.topic", b"orders"),
        ("__dlq.errors.partition", b"7"),
        ("__dlq.errors.offset", b"42"),
        ("__dlq.errors.group", "grüppe".encode()),
        ("__dlq.errors.delivery.count", b"5"),
        ("__dlq.errors.message", b"Offset delivery count exceeded the threshold."),
    )
    assert (letter.key, letter.value, letter.timestamp) == (None, None, 99)


def test_a_copy_has_key_and_value_and_the_time_of_the_write() -> None:
    letter = letter_of(SOURCE, DeadLetter(42, 1, is_rejected=True), RECORD, now_ms=99, copies_headers=False)
    assert (letter.key, letter.value, letter.timestamp, len(letter.headers)) == (b"k", b"v", 99, 6)


def test_headers_and_timestamp_are_copied_with_the_setting_of_the_proxy() -> None:
    """Headers of an earlier dead letter are replaced: a dead letter may fail again."""
    letter = letter_of(SOURCE, DeadLetter(42, 1, is_rejected=True), RECORD, now_ms=99, copies_headers=True)
    assert letter.timestamp == 5
    assert list(source_headers(letter)) == [("trace", b"1")]
    assert letter_text(dict(letter.headers), "__dlq.errors.offset") == "42"


def test_partitions_are_the_source_partition_modulo() -> None:
    letters = [(partition, Record(key=b"%d" % partition)) for partition in (0, 3, 4, 5)]
    placed = by_partition("dlq.t", 3, letters)
    assert [(each.partition, [record.key for record in each.records]) for each in placed] == [
        (0, [b"0", b"3"]),
        (1, [b"4"]),
        (2, [b"5"]),
    ]


def test_the_estimated_size_is_never_too_small() -> None:
    letters = [
        letter_of(SOURCE, DeadLetter(n, 1, is_rejected=True), RECORD, now_ms=2**40, copies_headers=True)
        for n in range(100)
    ]
    assert len(build_batch(0, letters)) <= bytes_max(letters) <= 1.5 * len(build_batch(0, letters))
