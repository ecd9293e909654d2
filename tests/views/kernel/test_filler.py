"""The filler control batch, byte for byte as it was tried with every client."""

from __future__ import annotations

import pytest
from kafka_share_proxy.views.kernel.filler import DELTA_MAX, filler
from kafka_share_proxy.wire.codec import layouts
from kafka_share_proxy.wire.errors import LocalProtocolError
from kafka_share_proxy.wire.records import records

GOLDEN = (
    "00000000000003e8 00000043 00000003 02 d965726f 0020 000003e7 000001a1fd557a80 000001a1fd557a80"
    "ffffffffffffffff ffff ffffffff 00000001 22 00 00 ce0f 08 00000001 0c 000000000000 00"
)
NARROW = (
    "00000000000007cf000000420000000302aa62100b002000000000000001a1fd557a80000001a1fd557a80"
    "ffffffffffffffffffffffffffff000000012000000008000000010c00000000000000"
)
TIMESTAMP = 1795251600000


def test_a_filler_has_the_bytes_that_every_client_was_tried_with() -> None:
    """Offsets 1000..1999 dropped, leader epoch 3; and one offset alone."""
    assert filler(1000, 1999, 3, TIMESTAMP) == bytes.fromhex(GOLDEN)
    assert filler(1999, 1999, 3, TIMESTAMP) == bytes.fromhex(NARROW)


@pytest.mark.parametrize(("base", "last"), [(0, 0), (5, 68), (0, 1_200_000), (1 << 40, (1 << 40) + DELTA_MAX)])
def test_a_filler_is_a_commit_marker_at_the_last_offset(base: int, last: int) -> None:
    """Our own reader finds one control record, of type COMMIT, at the last scanned offset, in no transaction."""
    batch = filler(base, last, 7, TIMESTAMP)
    (header,) = records.iter_batches(batch)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (base, last, 7)
    assert header.is_control
    assert not header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    (record,) = records.decode_records(batch)
    assert layouts.CONTROL_RECORD_KEY.parse(record.key or b"") == {"version": 0, "type": "commit"}
    assert (record.offset, record.timestamp) == (last, TIMESTAMP)


def test_a_gap_too_wide_for_one_batch_is_covered_to_its_end() -> None:
    """A consumer uses the last offset; the base offset does not matter to it."""
    (header,) = records.iter_batches(filler(0, 1 << 40, 7, TIMESTAMP))
    assert (header.base_offset, header.last_offset) == ((1 << 40) - DELTA_MAX, 1 << 40)


@pytest.mark.parametrize(("base", "last"), [(5, 4), (-1, 4)])
def test_a_filler_over_nothing_is_a_bug(base: int, last: int) -> None:
    """No caller needs one when the last scanned record was kept."""
    with pytest.raises(LocalProtocolError):
        filler(base, last, 0, TIMESTAMP)
