"""The filler: a batch that carries a consumer past records it does not get.

A control batch of no transaction with one COMMIT record at its last offset. Consumers skip it and stand behind it;
every other encoding stops some client for ever. It ends an answer whose last scanned record was dropped.
"""

from __future__ import annotations

from struct import Struct

from proxy.wire import records
from proxy.wire.errors import LocalProtocolError
from proxy.wire.records import CONTROL_MASK, HEADER, LOG_OVERHEAD, NO_PRODUCER_ID
from proxy.wire.varints import varlong

DELTA_MAX = (1 << 31) - 1
"""Offsets that one filler can span, less one."""

_KEY = Struct(">hh").pack(0, 1)
"""Version 0, type 1: COMMIT."""
_VALUE = Struct(">hi").pack(0, 0)
"""Version 0, coordinator epoch 0. Sarama does not pass a record without it."""


def filler(base_offset: int, last_offset: int, leader_epoch: int, max_timestamp: int) -> bytes:
    """One batch over the offsets base_offset..last_offset; where they are too many for one, over the last of them.

    Args:
        base_offset: the first that was dropped: behind the last kept record, or the fetch offset.
        last_offset: the last that was scanned.
        leader_epoch: that of the last scanned batch: consumers commit it, and one that never was hangs them.
        max_timestamp: that of the last scanned batch, milliseconds since 1970.

    Raises:
        LocalProtocolError: it would end before it begins.
    """
    if not 0 <= base_offset <= last_offset:
        raise LocalProtocolError(f"a filler from offset {base_offset} to {last_offset}")
    base_offset = max(base_offset, last_offset - DELTA_MAX)
    delta = last_offset - base_offset
    record = (
        b"\0" + varlong(0) + varlong(delta) + varlong(len(_KEY)) + _KEY + varlong(len(_VALUE)) + _VALUE + varlong(0)
    )
    body = varlong(len(record)) + record
    size = HEADER.size - LOG_OVERHEAD + len(body)
    header = HEADER.pack(
        base_offset,
        size,
        leader_epoch,
        2,
        0,
        CONTROL_MASK,
        delta,
        max_timestamp,
        max_timestamp,
        NO_PRODUCER_ID,
        -1,
        -1,
        1,
    )
    return records.seal(header + body)
