"""Audit events about records delivered to readers of views and of KeyFilter, and about the reads for them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from kafka_share_proxy.audit.events import HASH_SPACE, NOWHERE, Place
from kafka_share_proxy.audit.fetches import GivenRecords, Hashes, Reader
from kafka_share_proxy.audit.stream import Audit
from kafka_share_proxy.reading.chunk_cache import ReadKey
from kafka_share_proxy.views.fetch.view_chunks import Division
from kafka_share_proxy.views.model.names import parse
from kafka_share_proxy.views.model.plans import Plan
from kafka_share_proxy.views.model.scanning import SlotScan
from kafka_share_proxy.views.model.slots import Cut, EvenCut, KeyFilterCut, RangeCut
from kafka_share_proxy.wire.records.batches import BatchTable

HASHES_MAX = 10_000
"""Maximum number of hashes kept. Beyond it all are computed again."""
JOINED_VIEWS_MAX = 100
"""Maximum number of views of one member that are reported when it joins."""
NO_RANGES = Hashes(ranges=0)
"""Hashes of a slot that is no range of them, as a stripe of offsets."""


class JoinedMember(NamedTuple):
    """Member of a group, as accepted by the coordinator."""

    group: str
    member: str
    client: str | None
    group_protocol: str
    """Value of the client setting `group.protocol`."""
    assignor: str | None
    """Assignor of the group. None for the brokers' default (KIP-848)."""
    offered: Sequence[str]
    """Assignors that the member supports, in its order."""
    members: int | None = None
    """Members of the group. None if the response does not list them."""


class ViewAudit:
    """Reports to the audit what readers of views and of filters receive. One per process."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._hashes: dict[tuple[Hashable, int], Hashes] = {}

    def read(self, key: ReadKey, batches: BatchTable, data: memoryview) -> None:
        """Count the records that were read from a base partition, and sample their keys."""
        place = Place(key.topic_id, key.partition)
        load = self._audit.loads.of(place)
        load.rows += batches.records_count
        load.bytes += batches[-1].end - batches[0].position
        self._audit.keys.read(place, batches, data)

    def responded(
        self, key: ReadKey, view: str | None, division: Division, slot: SlotScan, client_id: str | None
    ) -> None:
        """Count delivered records. `view` is None for a KeyFilter."""
        if slot.position == slot.fetch_offset:
            return
        reader = Reader(
            kind="filter" if view is None else "view",
            place=Place(key.topic_id, key.partition),
            view=view,
            slot=None if view is None else slot.slot,
            client=client_id,
            hashes=self._hashes_of(division, slot.slot),
        )
        delivered = GivenRecords(
            first=slot.fetch_offset,
            last=slot.position - 1,
            rows_in=slot.scanned_records,
            rows_out=slot.records,
            bytes_in=slot.scanned_bytes,
            bytes_out=slot.bytes,
        )
        self._audit.fetches.add(reader, delivered)

    def plan_loaded(self, plan: Plan) -> None:
        ends = (*plan.starts[1:], HASH_SPACE)
        ranges = [(low, end, slot) for slot, (low, end) in enumerate(zip(plan.starts, ends, strict=True))]
        self._audit.offer("plan_loaded", Place(plan.topic or None), None, None, (plan.plan_id, plan.slots, ranges))

    def joined(self, joined: JoinedMember, views: Sequence[str]) -> None:
        """Report a member that subscribes to these views, which exist."""
        for topic in views[:JOINED_VIEWS_MAX]:
            view = parse(topic)
            place = NOWHERE if view is None else Place(view.base)
            self._audit.offer("view_member", place, joined.group, joined.member, (topic, *joined[2:]))

    def _hashes_of(self, division: Division, slot: int) -> Hashes:
        hashes = self._hashes.get((division.name, slot))
        if hashes is None:
            if len(self._hashes) >= HASHES_MAX:
                self._hashes.clear()
            hashes = self._hashes[division.name, slot] = hashes_of(division.cut, slot)
        return hashes


def hashes_of(cut: Cut, slot: int) -> Hashes:
    """Return the range of hashes in a slot, without the single keys of a filter."""
    if isinstance(cut, EvenCut):
        return Hashes(-(-slot * HASH_SPACE // cut.slots), -(-(slot + 1) * HASH_SPACE // cut.slots))
    if isinstance(cut, RangeCut):
        return _hull(cut.starts, cut.targets, slot)
    if isinstance(cut, KeyFilterCut):
        return _hull(*cut.starts_and_targets, slot)
    return NO_RANGES


def _hull(starts: tuple[int, ...], targets: tuple[int, ...], slot: int) -> Hashes:
    """Return the lowest start, the highest end, and the number of ranges."""
    ends = (*starts[1:], HASH_SPACE)
    mine = [(start, end) for start, end, target in zip(starts, ends, targets, strict=True) if target == slot]
    return Hashes(mine[0][0], mine[-1][1], len(mine)) if mine else NO_RANGES
