"""A consumer's records from one partition of a Fetch response, and its position afterwards."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records import compression, records
from kafka_share_proxy.wire.records.fetched_records import RUN_BYTES, fetched_records
from kafka_share_proxy.wire.records.records import Record

from tests.support.raw import Raw, until
from tests.wire.any_records import damaged, some_batch, with_fields
from tests.wire.clients import CLIENT_CODECS, DEFAULT
from tests.wire.old_messages import message, wrapper


class Aborted(NamedTuple):
    """An entry of an aborted list."""

    producer_id: int
    first_offset: int


def data(first: int, last: int, producer_id: int = -1, **options: Any) -> bytes:
    """A batch of records, each with its offset as key."""
    batch_records = [Record(b"%d" % offset) for offset in range(first, last + 1)]
    return records.build_batch(
        first, batch_records, producer_id=producer_id, is_transactional=producer_id >= 0, **options
    )


def marker(offset: int, producer_id: int, kind: int = 0) -> bytes:
    """The end of a transaction: 0 abort, 1 commit."""
    batch_records = [Record(struct.pack(">hh", 0, kind), bytes(6))]
    return records.build_batch(offset, batch_records, producer_id=producer_id, is_transactional=True, is_control=True)


def read(response: bytes, position: int = 0, aborted: Iterable[Aborted] | None = None, **options: Any) -> Any:
    """All offsets, and the position after them."""
    offsets = []
    for part in fetched_records(response, position, aborted, **options):
        offsets += [record.offset for record in part.records]
        position = part.next_offset
    return offsets, position


def test_batches_are_yielded_in_order() -> None:
    response = data(5, 6) + data(7, 9, leader_epoch=3)
    first, second = fetched_records(response, 5)
    assert [record.key for record in (*first.records, *second.records)] == [b"%d" % n for n in range(5, 10)]
    assert (first.next_offset, first.leader_epoch) == (7, -1)
    assert (second.next_offset, second.leader_epoch) == (10, 3)


def test_small_adjacent_batches_are_yielded_together() -> None:
    """If they have one leader and one timestamp type, and no more than RUN_BYTES of them."""
    plain = b"".join(data(n, n) for n in range(5))
    assert [part.next_offset for part in fetched_records(plain, 0)] == [5]
    by_broker = with_fields(data(5, 6), [(21, ">h", records.TIMESTAMP_TYPE_MASK), (35, ">q", 77)])
    packed = data(7, 8, codec=compression.GZIP)
    parts = list(fetched_records(plain + by_broker + packed + packed_later() + plain_at(11), 0))
    assert [part.next_offset for part in parts] == [5, 7, 9, 11, 13]
    assert [(r.timestamp, r.timestamp_type) for r in parts[1].records] == [(77, records.LOG_APPEND_TIME)] * 2
    led = b"".join(data(n, n, leader_epoch=n // 3) for n in range(8))
    assert [(part.leader_epoch, part.next_offset) for part in fetched_records(led, 0)] == [(0, 3), (1, 6), (2, 8)]
    large = [records.build_batch(n, [Record(value=bytes(RUN_BYTES // 3))]) for n in range(5)]
    assert [part.next_offset for part in fetched_records(b"".join(large), 0)] == [2, 4, 5]


def packed_later() -> bytes:
    return data(9, 10, codec=compression.ZSTD)


def plain_at(offset: int) -> bytes:
    return data(offset, offset) + data(offset + 1, offset + 1)


def test_a_last_batch_that_is_cut_off_is_left_out() -> None:
    """Brokers cut at a number of bytes."""
    whole, last = data(0, 1), data(2, 3)
    for cut in range(len(last)):
        assert read(whole + last[:cut]) == ([0, 1], 2)


def test_empty_bytes_yield_nothing() -> None:
    assert read(b"", 7) == ([], 7)


def test_bytes_without_a_whole_batch_are_refused() -> None:
    """A broker sends one whole batch of any size (KIP-74): a client that waits for more would wait for ever."""
    with pytest.raises(RemoteProtocolError, match="offset 7 without one whole batch"):
        read(data(7, 8)[:-1], 7)


def test_records_below_the_position_are_left_out() -> None:
    """Within a batch, and whole batches."""
    response = data(0, 3) + data(4, 7) + data(8, 8)
    assert read(response, 6) == ([6, 7, 8], 9)
    assert read(response, 8) == ([8], 9)
    assert read(response, 9) == ([], 9)


def test_compacted_records_move_the_position() -> None:
    """Gaps before, between and after records, and batches that it emptied."""
    remaining_records = [Record(offset=12), Record(offset=15)]
    response = records.build_batch(10, remaining_records, last_offset=19) + records.build_batch(20, [], last_offset=29)
    assert read(response, 10) == ([12, 15], 30)
    assert read(response, 16) == ([], 30)
    assert read(response, 25) == ([], 30)


def test_markers_are_no_records_but_move_the_position() -> None:
    response = data(0, 1, 7) + marker(2, 7, 1) + data(3, 3)
    assert read(response) == ([0, 1, 3], 4)
    assert [(len(part.records), part.next_offset) for part in fetched_records(response, 0)] == [(2, 2), (0, 3), (1, 4)]


def test_aborted_records_are_left_out_and_move_the_position() -> None:
    """From the first offset of the entry on up to the marker of that producer; others are not affected."""
    response = data(0, 1, 7) + data(2, 3, 8) + marker(4, 7) + data(5, 6, 7) + marker(7, 8, 1) + marker(8, 7, 1)
    listed = [Aborted(7, 0)]
    assert read(response, 0, listed) == ([2, 3, 5, 6], 9)
    assert [part.next_offset for part in fetched_records(response, 0, listed)] == [2, 4, 5, 7, 8, 9]
    assert read(response) == ([0, 1, 2, 3, 5, 6], 9)


def test_a_transaction_that_began_in_front_of_the_position_is_aborted() -> None:
    assert read(data(5, 6, 7) + marker(7, 7) + data(8, 9, 7), 6, [Aborted(7, 1)]) == ([8, 9], 10)


def test_a_wrong_batch_raises_when_it_is_reached() -> None:
    """The ones in front of it are good."""
    spoilt = bytearray(data(2, 3))
    spoilt[-1] ^= 1
    coming = fetched_records(data(0, 1) + bytes(spoilt) + data(4, 5), 0)
    assert next(coming).next_offset == 2
    with pytest.raises(RemoteProtocolError, match="checksum of the record batch at offset 2"):
        next(coming)


def test_records_with_descending_offsets_are_left_out() -> None:
    """Within adjacent batches, and after them: the position never goes back."""
    response = data(5, 7) + data(6, 8) + data(6, 9, codec=compression.GZIP) + data(0, 3)
    assert read(response, 5) == ([5, 6, 7, 8, 9], 10)


@pytest.mark.parametrize("position", [8, 16, 23])
def test_a_wrong_header_raises_when_it_is_reached(position: int) -> None:
    """After bytes that are no batch, no later batch can be found."""
    spoilt = bytearray(data(2, 3))
    spoilt[position] = 0xFF
    coming = fetched_records(data(0, 1) + bytes(spoilt), 0)
    assert next(coming).next_offset == 2
    with pytest.raises(RemoteProtocolError, match="record batch"):
        next(coming)


@pytest.mark.parametrize("kind", ["aborted", "marker", "below"])
def test_batches_of_which_nothing_is_used_are_checked_too(kind: str) -> None:
    """The checksum covers the fields that mark them as unused."""
    spoilt = bytearray(marker(0, 7) if kind == "marker" else data(0, 1, 7))
    spoilt[-1] ^= 1
    with pytest.raises(RemoteProtocolError, match="checksum"):
        read(bytes(spoilt), 9 if kind == "below" else 0, [Aborted(7, 0)])


def test_checksums_are_not_compared_if_switched_off() -> None:
    spoilt = bytearray(data(0, 1))
    spoilt[17] ^= 1
    assert read(bytes(spoilt), check_crcs=False) == ([0, 1], 2)


@pytest.mark.parametrize("codec", range(1, 5), ids=compression.NAMES[1:])
def test_decompressed_bytes_of_a_batch_are_bounded(codec: int) -> None:
    response = records.build_batch(0, [Record(value=bytes(100_000))], codec=codec)
    assert read(response, decompressed_max=101_000) == ([0], 1)
    with pytest.raises(RemoteProtocolError):
        read(response, decompressed_max=99_000)


def test_a_broken_record_is_named() -> None:
    spoilt = bytearray(data(0, 1))
    spoilt[61] = 0
    with pytest.raises(RemoteProtocolError, match=r"batch at offset 0: record 0 \(from 0\): its length"):
        read(records.seal(bytes(spoilt)))


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_magic_0_and_1_are_yielded_as_records(magic: int) -> None:
    """Brokers before 4.0 send them from segments that were never rewritten."""
    inner = b"".join(message(n if magic == 0 else n - 4, b"%d" % n, None, magic) for n in (4, 5, 6))
    response = message(3, b"3", b"v", magic) + wrapper(6, inner, compression.GZIP, magic) + data(7, 8)
    assert read(response, 3) == ([3, 4, 5, 6, 7, 8], 9)
    assert read(response, 5) == ([5, 6, 7, 8], 9)


@pytest.mark.parametrize(("client", "codec"), CLIENT_CODECS)
def test_other_clients_read_the_same(client: str, codec: int) -> None:
    """Offset, time, key, value and headers of every record of a batch."""
    dice = random.Random(codec)
    for _ in range(20):
        batch = some_batch(dice, codec, least=1)
        (fetched_batch,) = fetched_records(batch, 1000)
        theirs = [
            (r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in DEFAULT[client].DefaultRecordBatch(batch)
        ]
        assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in fetched_batch.records] == theirs


def test_any_bytes_are_records_or_refused() -> None:
    """Never another error, and the position never goes back."""
    dice = random.Random(7)
    for _ in range(1500):
        response = damaged(dice, b"".join(some_batch(dice, dice.randrange(5)) for _ in range(dice.randrange(1, 4))))
        position = dice.randrange(1000, 1500)
        try:
            for batch in fetched_records(response, position, [Aborted(1, 0)], check_crcs=dice.random() < 0.3):
                assert all(position <= record.offset < batch.next_offset for record in batch.records)
                assert batch.next_offset >= position
                position = batch.next_offset
        except (RemoteProtocolError, compression.CodecMissing):
            continue


GOLDEN = bytes.fromhex(Path(__file__).with_name("fetched_records.hex").read_text())
"""Batches that librdkafka wrote and a broker of 3.9.1 kept: records without transaction, an aborted one (snappy), a
committed one (zstd), and records by lz4 and gzip.
"""
FULL, TIME, NAMED = b"value " * 6, 1_700_000_000_000, (("header", b"\x00\xff"), ("null", None))


@pytest.mark.parametrize("is_committed", [True, False])
def test_golden_bytes_of_a_broker(is_committed: bool) -> None:
    """Every field of every record."""
    expected = [
        Record(b"a", FULL, NAMED, TIME, 0),
        Record(None, None, (), TIME + 7, 1),
        Record(b"", FULL, (), TIME + 14, 2),
        Record(b"b", FULL, NAMED, TIME, 3),
        Record(b"c", None, (), TIME + 7, 4),
        Record(b"d", FULL, NAMED, TIME, 6),
        Record(b"e", None, (), TIME + 7, 7),
        Record(b"f", FULL, NAMED, TIME, 9),
        Record(b"g", FULL, NAMED, TIME, 10),
        Record(b"h", None, (), TIME + 7, 11),
    ]
    parts = list(fetched_records(GOLDEN, 0, [Aborted(0, 3)] if is_committed else None))
    fetched_list = [record for part in parts for record in part.records]
    assert fetched_list == [record for record in expected if not (is_committed and record.offset in {3, 4})]
    assert ([part.next_offset for part in parts], parts[-1].leader_epoch) == ([3, 5, 6, 8, 9, 10, 12], 0)
    kinds = [
        records.decode_records(GOLDEN[batch.position : batch.end])[0].key
        for batch in records.iter_batches(GOLDEN)
        if batch.is_control
    ]
    assert kinds == [bytes(4), bytes((0, 0, 0, 1))]  # version 0: abort, commit


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 50
LIMIT_S = 30


def produced(bootstrap: str, topic: str, codec: str, rounds: Iterable[str]) -> list[tuple[str, bytes, bytes]]:
    """One transaction for each word, "commit" or "abort"; and records of none where it says "plain"."""
    sent = []
    common = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50}
    inside = Producer(common | {"transactional.id": f"{topic}-{codec}"})
    inside.init_transactions(LIMIT_S)
    for number, end in enumerate(rounds):
        by = Producer(common) if end == "plain" else inside
        if end != "plain":
            by.begin_transaction()
        for n in range(RECORDS):
            key, value = f"{codec}-{number}-{n}".encode(), f"{end} ".encode() * (n % 30)
            by.produce(topic, value, key, partition=0, headers=[("codec", codec), ("null", None)])
            sent.append((end, key, value))
        assert by.flush(LIMIT_S) == 0
        if end == "commit":
            by.commit_transaction(LIMIT_S)
        elif end == "abort":
            by.abort_transaction(LIMIT_S)
    return sent


def fetched(raw: Raw, topic: str, position: int, *, is_committed: bool) -> Any:
    """The entry of a response."""
    expected = {"partition": 0, "fetch_offset": position, "partition_max_bytes": 9_000}
    response = raw.send_request(
        "Fetch", 12, max_wait_ms=100, min_bytes=1, session_epoch=-1, isolation_level=int(is_committed),
        topics=[{"topic": topic, "partitions": [expected]}],
    )  # fmt: skip
    return response.responses[0].partitions[0]


def consumed(raw: Raw, topic: str, end: int, *, is_committed: bool) -> list[Record]:
    """All that a consumer gets, which begins each Fetch where the last one ended."""
    consumed_records: list[Record] = []
    position = 0

    def is_at_end() -> bool:
        nonlocal position
        entry = fetched(raw, topic, position, is_committed=is_committed)
        assert entry.error_code == 0
        aborted = entry.aborted_transactions if is_committed else None
        for batch in fetched_records(bytes(entry.records or b""), position, aborted):
            consumed_records.extend(batch.records)
            position = batch.next_offset
        return position >= end

    until(is_at_end, f"{topic} to be read", pause_s=0)
    assert position == end
    return consumed_records


@pytest.mark.broker
def test_records_of_a_real_broker(kafka_39: Any, fresh: Any) -> None:
    """Every codec, transactions committed and aborted and records of none, in responses that are cut within batches."""
    with Raw(kafka_39.bootstrap) as raw:
        topic = raw.create_topic(fresh("topic"))
        sent = []
        for codec in CODECS:
            sent += produced(kafka_39.bootstrap, topic.name, codec, ("commit", "abort", "plain", "abort", "commit"))
        end = len(sent) + 4 * len(CODECS)
        until(lambda: raw.end_offset(topic) == end, "the marker of the last transaction to be written")
        for is_committed in (False, True):
            fetched_list = consumed(raw, topic.name, end, is_committed=is_committed)
            expected = [(key, value) for fate, key, value in sent if fate != "abort" or not is_committed]
            assert [(record.key, record.value) for record in fetched_list] == expected
            offsets_of = [record.offset for record in fetched_list]
            assert offsets_of == sorted(set(offsets_of))
            for record in fetched_list:
                assert record.headers == (("codec", (record.key or b"").split(b"-")[0]), ("null", None))
