"""Messages of magic 0 and 1 become batches of magic 2 with the same records."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records import compression, legacy, records
from kafka_share_proxy.wire.records.records import LOG_APPEND_TIME, Record

from tests.wire.old_messages import TIMESTAMP, message, wrapper

LIMIT = 1 << 20
CODECS = (compression.GZIP, compression.SNAPPY, compression.LZ4)


def opened(data: bytes) -> list[Record]:
    """The records of the batch that becomes of it."""
    return records.decode_records(legacy.as_batch(memoryview(data), LIMIT))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("key", "value"), [(b"k", b"v"), (None, b"v"), (b"", None), (b"k" * 300, b"")])
def test_a_single_message(magic: int, key: bytes | None, value: bytes | None) -> None:
    """Magic 0 knows no time."""
    assert opened(message(7, key, value, magic)) == [Record(key, value, (), TIMESTAMP if magic else -1, 7)]


@pytest.mark.parametrize("codec", CODECS)
def test_a_wrapper_of_magic_1_counts_from_its_first_message(codec: int) -> None:
    """Its own offset is that of the last one; compaction leaves gaps."""
    inner = message(0, b"a", b"1") + message(3, None, b"2") + message(4, b"c", None)
    decoded = opened(wrapper(104, inner, codec))
    assert [(r.offset, r.key, r.value) for r in decoded] == [(100, b"a", b"1"), (103, None, b"2"), (104, b"c", None)]
    assert {r.timestamp for r in decoded} == {TIMESTAMP}


@pytest.mark.parametrize("codec", CODECS)
def test_a_wrapper_of_magic_0_has_true_offsets_inside(codec: int) -> None:
    """LZ4 frames of that time have a wrong header checksum."""
    inner = message(100, b"a", b"1", 0) + message(104, b"c", None, 0)
    data = wrapper(104, inner, codec, 0)
    if codec == compression.LZ4:
        frame = bytearray(compression.compress(codec, inner))
        assert legacy.mended(bytes(frame)) == frame
        frame[6] ^= 0x5A
        data = message(104, None, bytes(frame), 0, codec)
    assert [(r.offset, r.key, r.timestamp) for r in opened(data)] == [(100, b"a", -1), (104, b"c", -1)]


def test_log_append_time_of_a_wrapper_applies_to_all_its_messages() -> None:
    """The wrapper's timestamp counts, and the batch says who set it."""
    inner = message(0, b"a", b"1") + message(1, b"b", b"2")
    batch = legacy.as_batch(memoryview(wrapper(1, inner, compression.GZIP, 1, records.TIMESTAMP_TYPE_MASK)), LIMIT)
    (header,) = records.iter_batches(batch)
    assert header.is_log_append_time
    timestamps = {(record.timestamp, record.timestamp_type) for record in records.decode_records(batch)}
    assert timestamps == {(TIMESTAMP + 99, LOG_APPEND_TIME)}


GOOD = wrapper(1, message(0, b"a", b"1") + message(1, b"b", b"2"), compression.GZIP)


@pytest.mark.parametrize(
    "data",
    [
        GOOD[:-1],
        GOOD + b"\0",
        GOOD[:40] + bytes((GOOD[40] ^ 1,)) + GOOD[41:],
        wrapper(1, b"", compression.GZIP),
        wrapper(1, message(0, b"a", b"1")[:-1], compression.GZIP),
        wrapper(1, message(0, b"a", b"1", 0), compression.GZIP),
        wrapper(1, message(1, b"a", b"1") + message(0, b"a", b"1"), compression.GZIP),
        wrapper(1, wrapper(0, message(0, b"a", b"1"), compression.GZIP), compression.GZIP),
        wrapper(1, message(0, b"a", bytes(LIMIT)), compression.GZIP),
        message(1, None, None, 1, compression.GZIP),
        message(1, None, b"", 0, compression.LZ4),
        message(-1, b"a", b"1"),
        message(1, b"a", b"1") + message(2, b"a", b"1"),
        message(0, b"a", b"1")[:20],
    ],
)
def test_a_wrong_message_is_refused(data: bytes) -> None:
    """Sizes, checksums, nesting, offsets and the limit."""
    with pytest.raises(RemoteProtocolError):
        legacy.as_batch(memoryview(data), LIMIT)
