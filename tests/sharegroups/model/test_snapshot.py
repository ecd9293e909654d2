"""Stored bytes of a share partition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.sharegroups.model.snapshot import SNAPSHOT_BYTES_MAX, VERSION, ShareSnapshot, offsets_in
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.errors import RemoteProtocolError

OFFSETS = st.integers(0, 2**63 - 1)
BATCHES = st.tuples(OFFSETS, OFFSETS, st.sampled_from([0, 2, 4]), st.integers(0, 2**15 - 1))

LISTS = st.lists(BATCHES, max_size=200).map(tuple)


@given(st.builds(ShareSnapshot, OFFSETS, st.integers(0, 2**31 - 1), st.integers(-1, 2**31 - 1), st.tuples(BATCHES)))
def test_a_snapshot_survives_being_stored(snapshot: ShareSnapshot) -> None:
    assert ShareSnapshot.decode(snapshot.encode()) == snapshot


@given(st.builds(ShareSnapshot, OFFSETS, st.integers(0, 2**31 - 1), st.integers(-1, 2**31 - 1), LISTS))
def test_progress_is_read_without_the_batches(snapshot: ShareSnapshot) -> None:
    progress = (snapshot.start_offset, max(snapshot.delivery_complete_count, 0))
    assert ShareSnapshot.progress_in(snapshot.encode()) == progress


@given(st.builds(ShareSnapshot, OFFSETS, st.integers(0, 2**31 - 1), st.integers(-1, 2**31 - 1), LISTS))
def test_what_is_laid_out_by_hand_is_what_the_schema_says(snapshot: ShareSnapshot) -> None:
    message = messages.ShareSnapshotValue
    value = message(
        start_offset=snapshot.start_offset,
        state_epoch=snapshot.state_epoch,
        delivery_complete_count=snapshot.delivery_complete_count,
        state_batches=[
            message.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in snapshot.batches
        ],
    )
    assert snapshot.encode() == b"\0\0" + registry.codec_of(message, VERSION).encode(value)


def test_tagged_fields_of_a_newer_proxy_are_passed_over() -> None:
    """One in a batch, one after them: the fast reader has none."""
    head = "0000000000000000000700000001000000050200000000000000080000000000000" + "00c020003"
    for tail in ("0107015500", "00010701aa"):
        assert ShareSnapshot.decode(bytes.fromhex(head + tail)) == ShareSnapshot(7, 1, 5, ((8, 12, 2, 3),))


@pytest.mark.parametrize("size", [30, 50, 1000, SNAPSHOT_BYTES_MAX])
def test_what_is_allowed_fits_in_the_worst_case(size: int) -> None:
    """Each offset in a different state."""
    count = offsets_in(size)
    batches = tuple((offset, offset, 2 * (offset % 2), 1) for offset in range(count))
    assert len(ShareSnapshot(0, 0, 0, batches).encode()) <= max(size, 45)
    assert count >= (size - 100) // 20


def test_the_widest_window_that_may_be_configured_fits() -> None:
    """group.share.max.partition.max.record.locks is at most 10,000."""
    assert offsets_in(SNAPSHOT_BYTES_MAX - 32767) >= 10_000


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
