"""Partitions that one Fetch of views reads, and the entries for those that are refused."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_share_proxy.reading.chunk_cache import ReadKey
from kafka_share_proxy.reading.upstream_fetch import PartitionResponse, RequestedPartition
from kafka_share_proxy.views.fetch.view_chunks import Division, ViewChunk
from kafka_share_proxy.views.model.scanning import BaseScan, PlainScan, SlotScan
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition


@dataclass(slots=True, eq=False)
class Target:
    """One base partition that the request reads through views or filters."""

    key: ReadKey
    name: str
    scan: BaseScan
    divisions: dict[SlotScan, Division]
    may_share: bool = False
    """True if the cache and other clients' reads may serve this client (views/README.md rule 42)."""
    reads_alone: bool = False
    """True after another client's read failed this request."""
    empty_read_at: int = -1
    """Offset of the last read that returned no records, or -1."""
    refusal: PartitionResponse | None = None
    """Error entry for the whole partition."""
    slot_refusals: dict[SlotScan, PartitionResponse] = field(default_factory=dict)
    """Error entries that depend on the position of a slot."""
    own_chunks: list[ViewChunk] = field(default_factory=list)
    """Chunks that this request read."""

    @property
    def partition(self) -> TopicIdPartition:
        return TopicIdPartition(self.key.topic_id, self.key.partition)


@dataclass(slots=True, eq=False)
class PlainTarget:
    """One requested partition that is not a view."""

    plain: RequestedPartition
    scan: PlainScan
    base: tuple[bytes | str, int]
    """Topic id or name, as in the request, and partition."""
    response: PartitionResponse | None = None


def unknown_partition() -> PartitionResponse:
    return refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def refusal(code: ErrorCode) -> PartitionResponse:
    """Build an entry without records (FetchResponse.java)."""
    return messages.FetchResponse.PartitionData(
        error_code=code, high_watermark=-1, aborted_transactions=[], records=None
    )
