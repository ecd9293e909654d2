"""Reads of one place: registered, found, ended once."""

from __future__ import annotations

from kafka_share_proxy.reading.reads_under_way import ReadsUnderWay


def test_reads_of_one_key_are_in_the_order_they_began():
    reads = ReadsUnderWay[str, int]()
    for offset in (10, 5, 20):
        reads.begin("t-0", offset)
    reads.begin("t-1", 7)
    assert reads.of("t-0") == [10, 5, 20]
    assert reads.first("t-0", lambda offset: offset <= 10) == 10
    assert reads.first("t-0", lambda offset: offset > 20) is None
    assert reads.of("t-2") == ()
    assert reads.where(lambda offset: offset < 10) == [5, 7]
    assert len(reads) == 4


def test_read_ends_once_and_leaves_no_entry():
    reads = ReadsUnderWay[str, int]()
    reads.begin("t-0", 10)
    assert reads.end("t-0", 10)
    assert not reads.end("t-0", 10)
    assert not reads.end("t-1", 10)
    assert len(reads) == 0
    assert reads.where(lambda _: True) == []
