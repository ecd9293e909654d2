"""Samples of keys: the extension and its twin find the same, which is what decoded records and their hashes say."""

from __future__ import annotations

import random
from array import array
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records import key_samples, record_positions, records
from kafka_share_proxy.wire.records.key_hash import hash_of_record
from kafka_share_proxy.wire.records.key_samples import BUCKETS, KEY_MAX, ROW, KeySample, buckets
from kafka_share_proxy.wire.records.records import Record

from tests.wire.any_records import batches_of_records, damaged, some_batch

KERNELS: dict[str, Any] = {"python": (key_samples._python_sample, key_samples._python_tally)}
if record_positions.KERNEL == "c":
    KERNELS["c"] = (record_positions._record_positions.sample, record_positions._record_positions.tally)
every_kernel = pytest.mark.parametrize("kernel", KERNELS)
needs_c = pytest.mark.skipif(record_positions.KERNEL != "c", reason="the extension was not built here")


def expected(decoded: list[Record], first: int, every: int) -> tuple[bytes, bytes, bytes | None]:
    keyed, null = b"", b""
    keys = [record.key for record in decoded[first::every] if record.key is not None]
    for record in decoded[first::every]:
        row = ROW.pack(hash_of_record(record.key, record.offset), len(record.key or b"") + len(record.value or b""))
        keyed, null = (keyed, null + row) if record.key is None else (keyed + row, null)
    return keyed, null, keys[0] if keys and len(keys[0]) <= KEY_MAX else None


@every_kernel
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(base_and_records=batches_of_records(), first=st.integers(0, 14), every=st.integers(1, 5))
def test_a_sample_is_every_so_manieth_record(kernel: str, base_and_records: Any, first: int, every: int) -> None:
    """With the hash of its key, or that of its offset where there is none, and the bytes of key and value."""
    base, batch_records, last = base_and_records
    batch = records.build_batch(base, batch_records, last_offset=last)
    assert KERNELS[kernel][0](memoryview(batch)[61:], len(batch_records), base, first, every) == expected(
        batch_records, first, every
    )


def sampled(kernel: str, *args: Any) -> Any:
    try:
        return KERNELS[kernel][0](*args)
    except ValueError as error:
        return str(error).split(":")[0]


@needs_c
def test_the_kernels_agree_about_damaged_batches() -> None:
    """They find the same, or both name the same record."""
    dice = random.Random(5)
    outcomes = set()
    for _ in range(2000):
        batch = some_batch(dice, least=1)
        (header,) = records.iter_batches(batch)
        area = damaged(dice, batch[61:])
        args = (area, header.records_count, 1000, dice.randrange(4), dice.randrange(1, 4))
        assert sampled("c", *args) == sampled("python", *args)
        outcomes.add(type(sampled("c", *args)))
    assert outcomes == {str, tuple}


@every_kernel
def test_buckets_are_the_upper_bits_of_the_hash(kernel: str) -> None:
    counts, sizes = buckets()
    samples = [(0, 5), (0xFFFFF, 6), (0x100000, 7), (0xFFFFFFFF, 8)]
    assert KERNELS[kernel][1](b"".join(ROW.pack(*each) for each in samples), counts, sizes, 1) == 1
    assert {at: (counts[at], sizes[at]) for at in range(BUCKETS) if counts[at]} == {0: (2, 11), 1: (1, 7), 4095: (1, 8)}


@every_kernel
def test_each_sample_adds_its_weight_and_pairs_in_a_bucket_are_counted(kernel: str) -> None:
    counts, sizes = buckets()
    samples = b"".join(ROW.pack(hashed, 10) for hashed in (5, 6, 7, 1 << 20))
    assert KERNELS[kernel][1](samples, counts, sizes, 3) == 3
    assert KERNELS[kernel][1](samples[:8], counts, sizes, 1) == 0
    assert (counts[0], sizes[0], counts[1], sizes[1]) == (10, 100, 3, 30)


@every_kernel
def test_a_key_that_is_long_is_not_returned(kernel: str) -> None:
    for size, is_kept in ((KEY_MAX, True), (KEY_MAX + 1, False)):
        batch = records.build_batch(0, [Record(key=b"k" * size, value=b"", offset=0)])
        assert (KERNELS[kernel][0](memoryview(batch)[61:], 1, 0, 0, 1)[2] is not None) == is_kept


@every_kernel
@pytest.mark.parametrize(
    ("samples", "wide"), [(b"1234567", BUCKETS), (b"12345678", BUCKETS - 1)], ids=["half a sample", "few buckets"]
)
def test_arguments_that_do_not_fit_are_refused(kernel: str, samples: bytes, wide: int) -> None:
    with pytest.raises(ValueError, match="no such samples, buckets or weight"):
        KERNELS[kernel][1](samples, array("I", bytes(4 * wide)), buckets()[1], 1)


@every_kernel
@pytest.mark.parametrize("args", [(-1, 0, 0, 1), (1, 0, -1, 1), (1, 0, 0, 0), (1 << 31, 0, 0, 1)])
def test_numbers_that_no_batch_has_are_refused(kernel: str, args: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="no batch has"):
        KERNELS[kernel][0](b"1234567", *args)


def test_a_broken_batch_is_named() -> None:
    with pytest.raises(RemoteProtocolError, match="the record batch at offset 7: record 0"):
        key_samples.sample(b"\xff" * 20, 1, 7)


def test_rows_are_counted() -> None:
    assert KeySample(ROW.pack(1, 2), ROW.pack(1, 2) * 2).rows == 3
