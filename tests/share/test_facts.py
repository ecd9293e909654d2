"""What is stored of a share partition, as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import RemoteProtocolError
from proxy.share.facts import ShareSnapshot

OFFSETS = st.integers(0, 2**63 - 1)
BATCHES = st.tuples(OFFSETS, OFFSETS, st.sampled_from([0, 2, 4]), st.integers(0, 2**15 - 1))


@given(st.builds(ShareSnapshot, OFFSETS, st.integers(0, 2**31 - 1), st.integers(-1, 2**31 - 1), st.tuples(BATCHES)))
def test_a_snapshot_survives_being_stored(snapshot: ShareSnapshot) -> None:
    assert ShareSnapshot.decode(snapshot.encode()) == snapshot


def test_a_small_one_takes_about_100_bytes() -> None:
    batches = ((10, 14, 2, 1), (20, 29, 0, 1), (40, 41, 4, 3))
    assert len(ShareSnapshot(7, 1, 7, batches).encode()) <= 100
    assert len(ShareSnapshot(7, 1, 0, ()).encode()) <= 24


def test_the_bytes_stay_what_they_are() -> None:
    """A version that was written once is read for ever."""
    stored = bytes.fromhex("0000000000000000000700000001000000050200000000000000080000000000000" + "00c02000300" + "00")
    assert ShareSnapshot(7, 1, 5, ((8, 12, 2, 3),)).encode() == stored


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\1" + bytes(20), b"\0\0" + bytes(3), b"\xff\xff" + bytes(20)])
def test_bytes_that_are_no_snapshot_are_refused(value: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        ShareSnapshot.decode(value)
