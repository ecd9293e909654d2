"""Records of one slot of a view, with a filler at the end (views/README.md rules 31 to 37)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.partition_log import AbortedSpan, PartitionLog, StoredBatch
from kafka_share_proxy.views.kernel import slicing
from kafka_share_proxy.views.kernel.filler import filler
from kafka_share_proxy.views.kernel.slicing import Slice
from kafka_share_proxy.views.model.scanning import SlotScan
from kafka_share_proxy.views.model.slots import NOWHERE, Cut
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.records import BatchHeader
from kafka_share_proxy.wire.values import MIB

SCANNED_BYTES_MAX = 8 * MIB
"""Maximum bytes of a log that one read scans for one slot."""
DROPPED = Slice(None, NOWHERE, 0)


def read_slot(
    log: PartitionLog,
    cut: Cut,
    slot: int,
    offset: int,
    upto: int,
    bytes_max: int,
    *,
    at_least_one: bool,
    committed: bool,
) -> bytes:
    """Return the batches of a slot from `offset` to before `upto`.

    `committed`: leave out aborted records and all markers. `at_least_one`: return a batch of any size.
    """
    scan = SlotScan(slot, offset, bytes_max)
    aborted = log.aborted_between(offset, upto) if committed else []
    for stored in log.batches_between(offset, upto):
        header = records.read_header(stored.data)
        part = _part(stored, header, cut, scan, aborted, committed=committed)
        is_first = at_least_one and scan.bytes == 0
        if not scan.advance(header, part, bytes_max, at_least_one=is_first) or scan.scanned_bytes >= SCANNED_BYTES_MAX:
            break
    return _joined(scan)


def _part(
    stored: StoredBatch,
    header: BatchHeader,
    cut: Cut,
    scan: SlotScan,
    aborted: list[AbortedSpan],
    *,
    committed: bool,
) -> Slice:
    if header.is_control:
        return DROPPED if committed else Slice(stored.data, header.last_offset, header.records_count)
    if header.is_transactional and any(_is_in(header, each) for each in aborted):
        return DROPPED
    return slicing.split(memoryview(stored.data), cut, [scan.slot], scan.fetch_offset)[0]


def _is_in(header: BatchHeader, aborted: AbortedSpan) -> bool:
    is_within = aborted.first_offset <= header.base_offset < aborted.marker_offset
    return is_within and header.producer_id == aborted.producer_id


def _joined(scan: SlotScan) -> bytes:
    parts, end, gap = scan.parts, scan.cut_last_part_to, scan.gap
    if end is not None:
        parts[-1] = slicing.shorten(parts[-1], end)
    if gap is not None:
        parts.append(filler(*gap))
    return b"".join(parts)
