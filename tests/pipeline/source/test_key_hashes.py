"""Hashes of many keys are those of one (pipeline/README.md rule 15)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.pipeline.source import key_hashes
from kafka_share_proxy.wire.records.key_hash import hash_of_record


@given(st.lists(st.none() | st.binary(max_size=40), max_size=30), st.integers(0, 1 << 60))
def test_records_lie_where_kafka_has_them(keys: list[bytes | None], first: int) -> None:
    area, starts, sizes = b"..", [], []
    for key in keys:
        starts.append(len(area))
        sizes.append(-1 if key is None else len(key))
        area += (key or b"") + b"gap"
    offsets = np.arange(first, first + len(keys), dtype=np.int64)
    hashes = key_hashes.record_hashes(area, np.array(starts, np.int32), np.array(sizes, np.int32), offsets)
    assert hashes.tolist() == [hash_of_record(key, first + number) for number, key in enumerate(keys)]


def test_long_keys_are_hashed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_hashes, "_WORDS", 4)
    area = bytes(range(40)) * 10
    starts = np.arange(0, 400, 40, dtype=np.int32)
    hashes = key_hashes.record_hashes(area, starts, np.full(10, 40, np.int32), np.zeros(10, np.int64))
    assert set(hashes.tolist()) == {hash_of_record(bytes(range(40)), 0)}
