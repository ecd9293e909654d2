"""Record batches: walked, built, opened, and compared with what two other clients write."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from kafka_share_proxy.wire.codec import layouts
from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.errors import LocalProtocolError, RemoteProtocolError
from kafka_share_proxy.wire.records import compression, record_positions, records
from kafka_share_proxy.wire.records.batches import split_complete
from kafka_share_proxy.wire.records.records import Record, build_batch

from tests.wire.any_records import damaged, some_batch, with_fields
from tests.wire.clients import CLIENT_CODECS, DEFAULT, LegacyRecordBatchBuilder

RECORDS = [
    Record(b"k1", b"v1", (("h", b"x"), ("n", None), ("Ü", b"")), 1_700_000_000_000),
    Record(None, b"y" * 300, (), 1_700_000_000_900),
    Record(b"", None, (), 1_699_999_999_999),
]
FLAGS: list[dict[str, Any]] = [
    {},
    {"producer_id": 5, "producer_epoch": 2, "base_sequence": 7},
    {"producer_id": 5, "producer_epoch": 2, "base_sequence": 7, "is_transactional": True},
    {"producer_id": 5, "producer_epoch": 2, "is_transactional": True, "is_control": True},
    {"leader_epoch": 12},
]


def headers_of(data: bytes) -> list[records.BatchHeader]:
    """All of them."""
    return list(records.iter_batches(data))


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("codec", range(5), ids=compression.NAMES)
def test_built_batches_are_decoded_to_the_same_records(flags: dict[str, Any], codec: int) -> None:
    """Built, walked and opened again, with every compression; construct reads the same header."""
    batch = records.build_batch(100, RECORDS, codec=codec, **flags)
    (header,) = headers_of(batch)
    assert (header.base_offset, header.last_offset, header.records_count) == (100, 102, 3)
    assert (header.position, header.size, header.end, header.magic) == (0, len(batch), len(batch), 2)
    assert header.compression == codec
    assert header.is_transactional == flags.get("is_transactional", False)
    assert header.is_control == flags.get("is_control", False)
    assert header.max_timestamp == 1_700_000_000_900
    parsed = layouts.RECORD_BATCH.parse(batch)
    for name in ("leader_epoch", "producer_id", "producer_epoch", "base_sequence", "base_timestamp", "max_timestamp"):
        assert parsed[name] == getattr(header, name) == flags.get(name, getattr(header, name))
    assert parsed.crc == records.checksum(batch)
    assert layouts.RECORD_BATCH.build(parsed) == batch
    expected = [record._replace(offset=100 + i) for i, record in enumerate(RECORDS)]
    assert records.decode_records(batch) == expected


def small_headers(chance: random.Random) -> Iterator[tuple[tuple[str, bytes | None], ...]]:
    for count in (1, 6, 70):
        names = ("", "h", "__dlq.errors.topic", "n" * 70, "\u00e9\u65e5\U0001f600")
        yield tuple((chance.choice(names), chance.choice((None, b"", b"x" * 64))) for _ in range(count))


def small_batches() -> Iterator[tuple[list[Record], dict[str, Any]]]:
    """Yield records as in state appends and dead letters, and at their limits, with the arguments of the batch."""
    chance = random.Random(5)
    numbers = ("producer_id", "producer_epoch", "base_sequence", "leader_epoch")
    for count in (1, 2, 3, 63, 64, 65, 300):
        small_records = [
            Record(
                chance.choice((None, b"", chance.randbytes(chance.choice((1, 62, 63, 64, 70, 8192))))),
                chance.choice((None, b"", chance.randbytes(chance.choice((1, 63, 64, 9000))))),
                chance.choice(((), *small_headers(chance))),
                timestamp=chance.choice((-1, 0, 5, 1_700_000_000_000, (1 << 62) + 5)),
            )
            for _ in range(count)
        ]
        yield small_records, {name: chance.randrange(-1, 1 << 15) for name in numbers}


def test_extension_writes_what_the_python_fallback_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    for small_records, numbers in small_batches():
        for base_offset, codec in ((0, 0), (7, compression.ZSTD), (1 << 40, compression.LZ4)):
            built = records.build_batch(base_offset, small_records, codec=codec, **numbers)
            with monkeypatch.context() as patched:
                patched.setattr(records, "_build_small", records._not_built)
                assert records.build_batch(base_offset, small_records, codec=codec, **numbers) == built


@pytest.mark.skipif(records.KERNEL == "python", reason="the extension was not built")
def test_keys_are_found_without_opening_a_batch() -> None:
    """As in the opened records; compressed, transactional or damaged batches have no result."""
    chance, count = random.Random(7), 0
    for number in range(300):
        keys = [
            chance.choice((b"\0\0a", b"\0\0" + b"b" * 70, b"\0\0", *([b"\0\1", b"\0", None] * (number % 2))))
            for _ in "12"
        ]
        keyed = [Record(key, chance.choice((None, b"", b"v" * 200)), (("h", b"x"),) * (number % 3)) for key in keys]
        batch = records.build_batch(number, keyed, is_transactional=number % 7 == 6)
        expected = number % 7 != 6 and all((key or b"").startswith(b"\0\0") for key in keys)
        assert records.has_only_keys(memoryview(batch), b"\0\0") == expected
        count += expected
        assert not records.has_only_keys(batch[: chance.randrange(len(batch))], b"\0\0")
        damaged = bytearray(batch)
        damaged[chance.randrange(21, len(batch))] ^= 1 << chance.randrange(8)
        assert not records.has_only_keys(damaged, b"\0\0")
    assert count
    assert not records.has_only_keys(records.build_batch(0, RECORDS, codec=compression.GZIP), b"")


@pytest.mark.skipif(records.KERNEL == "python", reason="the extension was not built")
def test_keys_of_bytes_that_are_no_records_are_errors() -> None:
    """With a right checksum over them: lengths are believed only as far as there are bytes."""
    chance = random.Random(8)
    for _ in range(2000):
        batch = bytearray(records.build_batch(3, [Record(b"\0\0key", b"value")] * chance.choice((1, 2))))
        for _ in range(chance.randrange(1, 4)):
            batch[chance.randrange(57, len(batch))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        sealed = records.seal(bytes(batch))
        try:
            opened = records.decode_records(sealed)
        except RemoteProtocolError:
            records.has_only_keys(sealed, b"\0\0")
            continue
        assert records.has_only_keys(sealed, b"\0\0") <= all((r.key or b"").startswith(b"\0\0") for r in opened)


@pytest.mark.skipif(records.KERNEL == "python", reason="the extension was not built")
def test_last_values_are_those_of_the_decoded_records() -> None:
    """Also of bytes that are no records, with a right checksum over them: those are left to the decoder."""
    chance, outcome_count = random.Random(9), 0
    for number in range(4000):
        keys = [chance.choice((b"\0\0a", b"\0\1" + b"b" * 70, b"\0\0", b"\0\2", b"\0", None)) for _ in "123"]
        keyed = [Record(key, chance.choice((None, b"", b"v" * 200)), (("h", b"x"),) * (number % 3)) for key in keys]
        batch = bytearray(records.build_batch(7, keyed, producer_id=5, producer_epoch=2, base_sequence=0))
        for _ in range(chance.randrange(4) if number % 2 else 0):
            batch[chance.randrange(21, len(batch))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        sealed = records.seal(bytes(batch))
        values: dict[bytes, bytes] = {b"\0\0a": b"before"}
        writers: dict[bytes, Any] = {}
        outcome = records.keep_last(sealed, 0, 1, 0, 100, b"\0\0\0\1", values, writers, (5, 2))
        if outcome[0] == 0:
            assert (outcome, values, writers) == ((0, 0, -1), {b"\0\0a": b"before"}, {})
            continue
        (header,) = headers_of(sealed)
        opened, expected = records.decode_records(sealed), {b"\0\0a": b"before"}
        for record in opened:
            assert record.key is not None
            assert record.key[:2] in (b"\0\0", b"\0\1")
            expected.pop(record.key, None)
            if record.value is not None:
                expected[record.key] = record.value
        assert values == expected
        assert writers == dict.fromkeys((record.key for record in opened), (5, 2))
        assert outcome == (len(sealed), header.last_offset + 1, max(header.max_timestamp, -1))
        outcome_count += 1
    assert outcome_count > 100


@pytest.mark.skipif(records.KERNEL == "python", reason="the extension was not built")
def test_last_values_stop_before_an_uncommon_batch() -> None:
    plain = {"producer_id": 5, "producer_epoch": 2, "base_sequence": 0}
    batch = records.build_batch(7, [Record(b"\0\0a", b"v")], **plain)
    arguments = 7, 7, b"\0\0", {}, {}, (5, 2)
    size = len(batch)
    assert records.keep_last(batch, 0, 1, *arguments) == (size, 8, -1)
    assert records.keep_last(batch + batch[:-1], 0, 1 << 20, *arguments) == (size, 8, -1), "the last one is truncated"
    assert records.keep_last(batch, 0, 0, *arguments) == (0, 7, -1)
    assert records.keep_last(batch, size, 1 << 20, *arguments) == (size, 7, -1)
    assert records.keep_last(batch, 0, 1, 8, *arguments[1:]) == (size, 8, -1), "taken in before"
    for stopped in (
        (batch, 7, 6, *arguments[2:]),
        (batch, 7, 7, b"\0\1", *arguments[3:]),
        (batch, *arguments[:5], (5, 3)),
        (batch, *arguments[:5], (6, 2)),
        (batch[:-1], *arguments),
        (records.build_batch(7, [Record(b"\0\0a", b"v")], codec=compression.GZIP, **plain), *arguments),
        (records.build_batch(7, [Record(b"\0\0a", b"v")], is_transactional=True, **plain), *arguments),
        (batch[:60] + b"\x02" + batch[61:], *arguments),
    ):
        assert records.keep_last(stopped[0], 0, 1, *stopped[1:]) == (0, 7, -1)
    with pytest.raises(ValueError, match="negative"):
        records.keep_last(batch, -1, 1, *arguments)


def test_unusual_records_are_left_to_the_python_fallback() -> None:
    """Headers of wrong types, offsets of their own, what is no bytes, numbers that do not fit."""
    if records._small_batches is None:
        pytest.skip("the extension was not built")
    build = records._small_batches.build
    usual = Record(b"k", b"v", timestamp=5)
    assert build([usual], 0, -1, -1, -1, -1, 0) is not None
    assert build([usual._replace(headers=(("h", b""),))], 0, -1, -1, -1, -1, 0) is not None
    for other in (
        usual._replace(headers=((b"h", b""),)),  # type: ignore[arg-type]
        usual._replace(headers=(("h", "v"),)),  # type: ignore[arg-type]
        usual._replace(headers=(("h",),)),  # type: ignore[arg-type]
        usual._replace(headers=(("\ud800", b""),)),
        usual._replace(headers=[("h", b"")]),  # type: ignore[arg-type]
        usual._replace(offset=3),
        usual._replace(timestamp=-2),
        usual._replace(timestamp=1 << 63),
        usual._replace(key="k"),  # type: ignore[arg-type]
        usual[:4],
        None,
    ):
        assert build([usual, other], 0, -1, -1, -1, -1, 0) is None
    for numbers in ((-1, 0, 0, 0, 0, 0), (1 << 63, 0, 0, 0, 0, 0), (0, 1 << 31, 0, 0, 0, 0), (0, 0, 0, 1 << 15, 0, 0)):
        assert build([usual], *numbers) is None
    assert build([], 0, 0, 0, 0, 0, 0) is None


def test_records_as_construct_reads_them() -> None:
    """Every field of every record of an uncompressed batch."""
    batch = records.build_batch(0, RECORDS)
    parsed = layouts.plain(layouts.records(3).parse(layouts.RECORD_BATCH.parse(batch).records))
    ours = [
        (record.key, record.value, [(name.encode(), value) for name, value in record.headers]) for record in RECORDS
    ]
    theirs = [
        (one["key"]["data"], one["value"]["data"], [(h["name"]["data"], h["value"]["data"]) for h in one["headers"]])
        for one in parsed
    ]
    assert theirs == ours
    assert [one["offset_delta"] for one in parsed] == [0, 1, 2]


@pytest.mark.parametrize(("client", "codec"), CLIENT_CODECS)
@pytest.mark.parametrize("transactional", [False, True])
def test_batches_of_other_clients_are_decoded(client: str, codec: int, transactional: bool) -> None:
    """Batches of aiokafka and kafka-python are walked, checked, opened and decoded the same."""
    builder = DEFAULT[client].DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=transactional,
        producer_id=9,
        producer_epoch=1,
        base_sequence=4,
        batch_size=100_000,
    )
    for i in range(20):
        builder.append(i, timestamp=1_700_000_000_000 + i, key=b"k%d" % i, value=b"v" * 100, headers=[("h", b"x")])
    batch = bytes(builder.build())
    (header,) = headers_of(batch)
    parsed = layouts.RECORD_BATCH.parse(batch)
    assert (header.base_offset, header.last_offset, header.records_count) == (0, 19, 20)
    assert (header.compression, header.is_transactional, header.is_control) == (codec, transactional, False)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 4)
    assert int(parsed.attributes.compression) == codec
    assert parsed.attributes.is_transactional == transactional
    assert records.has_valid_checksum(batch)
    opened = records.decode_records(batch)
    assert [(r.offset, r.key, r.value, r.headers) for r in opened] == [
        (i, b"k%d" % i, b"v" * 100, (("h", b"x"),)) for i in range(20)
    ]
    assert [record.timestamp for record in opened] == [1_700_000_000_000 + i for i in range(20)]


@pytest.mark.parametrize(("client", "codec"), CLIENT_CODECS)
def test_other_clients_read_our_batches(client: str, codec: int) -> None:
    """Checksum, compression framing and records are as they expect."""
    batch = DEFAULT[client].DefaultRecordBatch(records.build_batch(50, RECORDS, codec=codec, leader_epoch=0))
    assert batch.validate_crc()
    read = [(record.offset, record.key, record.value) for record in batch]
    assert read == [(50, b"k1", b"v1"), (51, None, b"y" * 300), (52, b"", None)]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_messages_of_old_formats(magic: int, codec: int) -> None:
    """Old logs may still hold magic 0 and 1: walked by offset and size, before batches of magic 2."""
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=10_000)
    for i in range(3):
        builder.append(i, timestamp=1_500_000_000_000, key=None, value=b"v%d" % i)
    data = bytes(builder.build()) + records.build_batch(3, RECORDS)
    *old, new = headers_of(data)
    assert all(header.magic == magic and header.compression == codec for header in old)
    assert [header.last_offset for header in old] == ([0] if codec else [0, 1, 2])
    assert (new.magic, new.base_offset, new.position) == (2, 3, old[-1].end)
    message = layouts.LEGACY_MESSAGE.parse(data[: old[0].size])
    assert (message.magic, int(message.attributes.compression)) == (magic, codec)


def test_a_cut_off_batch_ends_the_walk() -> None:
    """Brokers cut a response at a number of bytes: wherever that is, the whole batches before it are found."""
    data = records.build_batch(0, RECORDS) + records.build_batch(3, RECORDS)
    first = headers_of(data)[0]
    for cut in range(len(data)):
        batches, complete = split_complete(data[:cut])
        assert len(batches) == (1 if cut >= first.size else 0)
        assert complete == (first.size if batches else 0)
        assert len(layouts.RECORD_BATCHES.parse(data[:cut])) == len(batches)
    assert len(headers_of(data)) == 2
    assert headers_of(b"") == []


def test_the_walk_takes_any_buffer() -> None:
    """A view into a response, from any position."""
    data = b"answer" + records.build_batch(7, RECORDS)
    (header,) = records.iter_batches(memoryview(data), 6)
    assert (header.position, header.base_offset) == (6, 7)


SPOILT = [
    (8, struct.pack(">i", -1)),
    (8, struct.pack(">i", 0)),
    (8, struct.pack(">i", 48)),
    (8, struct.pack(">i", -(2**31))),
    (16, b"\x03"),
    (16, b"\xff"),
    (23, struct.pack(">i", -1)),
    (57, struct.pack(">i", -5)),
    (0, struct.pack(">q", -1)),
]


@pytest.mark.parametrize(("position", "lie"), SPOILT)
def test_headers_that_cannot_be(position: int, lie: bytes) -> None:
    """Sizes too small or negative, unknown magic, negative deltas: refused, never an endless walk."""
    batch = bytearray(records.build_batch(0, RECORDS))
    batch[position : position + len(lie)] = lie
    with pytest.raises(RemoteProtocolError):
        headers_of(bytes(batch))


def test_any_bytes_are_walked_or_refused() -> None:
    """Noise and spoilt batches: headers within the buffer, records, or RemoteProtocolError."""
    draw = random.Random(2)
    batch = records.build_batch(0, RECORDS)
    for _ in range(2_000):
        spoilt = bytearray(batch)
        for _ in range(draw.randint(1, 3)):
            spoilt[draw.randrange(len(spoilt))] = draw.randrange(256)
        resealed = records.seal(bytes(spoilt))
        for data in (bytes(spoilt), resealed, draw.randbytes(draw.randrange(200))):
            try:
                assert all(header.end <= len(data) for header in records.iter_batches(data))
                records.decode_records(data)
            except (RemoteProtocolError, compression.CodecMissing):
                continue


def test_a_wrong_checksum_is_refused() -> None:
    """Records are not shown to anybody when the bytes are not those of the producer."""
    batch = bytearray(records.build_batch(0, RECORDS))
    batch[-1] ^= 1
    assert not records.has_valid_checksum(batch)
    with pytest.raises(RemoteProtocolError, match="checksum"):
        records.decode_records(batch)


def test_the_count_of_records_is_no_promise() -> None:
    """A billion records in a batch of 400 bytes are refused before a list is made."""
    batch = bytearray(records.build_batch(0, RECORDS))
    batch[57:61] = struct.pack(">i", 2**30)
    with pytest.raises(RemoteProtocolError, match="cannot be in"):
        records.decode_records(records.seal(bytes(batch)))


def test_log_append_time_applies_to_all_records() -> None:
    """The broker sets one time per batch; the deltas of the producer stay but do not count."""
    batch = bytearray(records.build_batch(0, RECORDS))
    batch[22] |= records.TIMESTAMP_TYPE_MASK
    decoded = records.decode_records(records.seal(bytes(batch)))
    assert {record.timestamp for record in decoded} == {1_700_000_000_900}


def test_gaps_stay_gaps() -> None:
    """Compaction removes records and keeps offsets, also the last one."""
    batch = records.build_batch(10, [Record(b"k", b"v", offset=12)], last_offset=20)
    (header,) = headers_of(batch)
    assert (header.base_offset, header.last_offset, header.records_count) == (10, 20, 1)
    assert [record.offset for record in records.decode_records(batch)] == [12]
    empty = records.build_batch(10, [], last_offset=20)
    assert headers_of(empty)[0].last_offset == 20
    assert records.decode_records(empty) == []


@pytest.mark.parametrize(("batch_records", "last"), [([], None), ([Record(offset=3)], None), ([Record(offset=12)], 11)])
def test_batches_that_cannot_be_built(batch_records: list[Record], last: int | None) -> None:
    """No record at all, or one outside the offsets of the batch."""
    with pytest.raises(LocalProtocolError):
        records.build_batch(10, batch_records, last_offset=last)


def test_control_records_are_decoded() -> None:
    record = Record(struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 9))
    assert str(layouts.CONTROL_RECORD_KEY.parse(record.key or b"").type) == "commit"
    assert layouts.END_TXN_MARKER.parse(record.value or b"").coordinator_epoch == 9


OPENERS = {"python": records._python_open_batch, record_positions.KERNEL: records._open_batch}
every_opener = pytest.mark.parametrize("opener", OPENERS)


def whole_payload(codec: int, payload: Buffer) -> Buffer:
    return compression.decompress(codec, payload, records.DECOMPRESSED_MAX)


def opened_by(
    opener: str, monkeypatch: pytest.MonkeyPatch, data: bytes, start: int, end: int, *, check_crcs: bool = True
) -> Any:
    """The bytes and columns that are found, or the error."""
    monkeypatch.setattr(records, "_open_batch", OPENERS[opener])
    try:
        area, positions = records.open_batch(memoryview(data), start, end, whole_payload, check_crcs=check_crcs)
    except RemoteProtocolError as error:
        return "no batch" if re.match("a record batch |a message |not exactly one whole", str(error)) else str(error)
    return bytes(area), positions.columns


@every_opener
@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("seed", range(10))
def test_a_batch_is_opened_in_one_call(opener: str, codec: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes and positions as step by step, wherever the batch stands, and whoever set its times."""
    batch = some_batch(random.Random(seed), codec)
    if seed % 2:
        batch = with_fields(batch, [(22, "b", codec | records.TIMESTAMP_TYPE_MASK)])
    area, positions = records.find_records(batch, records.read_header(batch))
    data = b"before" + batch + b"after"
    assert opened_by(opener, monkeypatch, data, 6, 6 + len(batch)) == (bytes(area), positions.columns)


@pytest.mark.parametrize("seed", range(150))
def test_both_kernels_open_and_refuse_the_same_batches(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any damage, with a right checksum or with one that is not verified: the same content or the same error."""
    dice = random.Random(seed)
    for _ in range(20):
        batch = damaged(dice, some_batch(dice, dice.choice((0, 0, 3))))
        if len(batch) >= records.HEADER.size and dice.random() < 0.7:
            batch = with_fields(batch, [(8, ">i", len(batch) - records.LOG_OVERHEAD)])
        end = max(0, len(batch) + dice.choice((0, 0, 0, 0, -1, 1)))
        checked = dice.random() < 0.5
        outcomes = [opened_by(opener, monkeypatch, batch + b"next", 0, end, check_crcs=checked) for opener in OPENERS]
        assert outcomes[0] == outcomes[-1], batch.hex()


@every_opener
def test_invalid_batches_are_refused(opener: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = build_batch(7, [Record(value=b"v")], codec=compression.LZ4)
    wrong = with_fields(batch, [(57, ">i", 5000)])
    broken = bytearray(batch)
    broken[-1] ^= 1
    assert opened_by(opener, monkeypatch, wrong, 0, len(wrong)) == (
        "the record batch at offset 7: 5000 records cannot be in 8 bytes"
    )
    assert opened_by(opener, monkeypatch, bytes(broken), 0, len(broken)) == (
        "the checksum of the record batch at offset 7 is wrong"
    )
    for end in (0, 20, 61, len(batch) - 1, len(batch) + 1):
        assert opened_by(opener, monkeypatch, batch + b"x", 0, end) == "no batch"


@every_opener
def test_an_error_of_the_decompression_is_passed_on(opener: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_open_batch", OPENERS[opener])
    batch, payloads = build_batch(7, [Record(value=b"v")], codec=compression.ZSTD), []

    def refuse(codec: int, payload: Buffer) -> Buffer:
        payloads.append((codec, bytes(payload)))
        raise compression.CodecMissing("no zstd")

    with pytest.raises(compression.CodecMissing, match="no zstd"):
        records.open_batch(memoryview(batch), 0, len(batch), refuse)
    assert payloads == [(compression.ZSTD, batch[61:])]
