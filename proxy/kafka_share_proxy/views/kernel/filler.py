"""The filler: a batch that moves a consumer past records that it does not get.

Rules: views/README.md 31 to 34. Every other encoding makes some client hang forever.
"""

from __future__ import annotations

from struct import Struct

from kafka_share_proxy.wire.codec.varints import varlong
from kafka_share_proxy.wire.errors import LocalProtocolError
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.records import CONTROL_MASK, HEADER, LOG_OVERHEAD, NO_PRODUCER_ID

DELTA_MAX = (1 << 31) - 1
"""Maximum last offset delta of a batch."""

_KEY = Struct(">hh").pack(0, 1)
"""Version 0, type COMMIT."""
_VALUE = Struct(">hi").pack(0, 0)
"""Version 0, coordinator epoch 0. Sarama needs it (views/README.md rule 32)."""


def filler(base_offset: int, last_offset: int, leader_epoch: int, max_timestamp: int) -> bytes:
    """Build one batch over the offsets, or over the last ones if these are too many.

    `leader_epoch` and `max_timestamp` are those of the last scanned batch. Raises LocalProtocolError if last_offset
    precedes base_offset.
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
