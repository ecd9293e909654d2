"""Events between the application side and the background side of a consumer (consumer/README.md rule 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kafka_share_proxy.consumer.partitions import NOTHING, Flow, OffsetAndMetadata, Partitions, shown
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError
from kafka_share_proxy.wire.values import TopicPartition

# Errors of managers and calls


class ConsumerError(ProxyError):
    """A consumer request failed permanently."""


class FatalGroupError(ConsumerError):
    """The group rejects this member as it is configured."""


class PartitionLostError(ConsumerError):
    """The partition is no longer owned by this member, so its requests for it have no effect."""


class CallTimedOut(ConsumerError):
    """A call had no result within api_timeout_s. The text names the cause."""


class BrokerRefused(ConsumerError):
    """A broker returned an error that a retry does not fix."""

    def __init__(self, request: str, code: int, about: str = "", detail: str | None = None) -> None:
        self.code = ErrorCode.of(code)
        where = f" of {about}" if about else ""
        super().__init__(f"{request}{where}: {self.code.name}" + (f" ({detail})" if detail else ""))


# Application events


class Subscribe(NamedTuple):
    """Join the group with these topics. An empty set unsubscribes."""

    topics: frozenset[str]
    pattern: str | None = None
    """Regular expression over topic names, used instead of `topics`."""


class Assign(NamedTuple):
    """Read these partitions without a group. An empty set unsubscribes."""

    partitions: Partitions


class LeaveGroup(NamedTuple):
    """Give up all partitions and leave the group."""

    call_id: int
    """Unique, above 0."""


class Commit(NamedTuple):
    """Commit offsets. The result is None, CommitRefused or RangesLeftOut."""

    call_id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


class FetchCommitted(NamedTuple):
    """Query committed offsets. The result is partition -> OffsetAndMetadata, or None if nothing is committed."""

    call_id: int
    partitions: Partitions


class ListOffsets(NamedTuple):
    """Query offsets by timestamp. The result is partition -> FoundOffset."""

    call_id: int
    timestamps: Mapping[TopicPartition, int]
    """Milliseconds since 1970. -1: log end, -2: log start, -3: largest timestamp."""


class AckPartitionsRevoked(NamedTuple):
    """The application has released these partitions."""

    rebalance_id: int
    partitions: Partitions


class AckPartitionsAssigned(NamedTuple):
    """The application has received its assignment."""

    rebalance_id: int


class UpdateMetadata(NamedTuple):
    """Refresh the cluster metadata."""


class Seek(NamedTuple):
    """Continue reading at this offset."""

    partition: TopicPartition
    offset: int
    flow: Flow = Flow.MAIN
    """CHILD reads again from its own position."""


class Pause(NamedTuple):
    """Stop fetching these partitions."""

    partitions: Partitions


class Resume(NamedTuple):
    """Fetch these partitions again."""

    partitions: Partitions


ApplicationEvent = (
    Subscribe | Assign | LeaveGroup | Commit | FetchCommitted | ListOffsets | AckPartitionsRevoked
    | AckPartitionsAssigned | UpdateMetadata | Seek | Pause | Resume
)  # fmt: skip

# Background events


class RevokePartitions(NamedTuple):
    """Partitions to revoke. The application acknowledges after it has released them."""

    rebalance_id: int
    partitions: Partitions
    deadline: float
    """Monotonic seconds at which the partitions are given up as lost."""


class RevokeCancelled(NamedTuple):
    """A pending revocation of these partitions is cancelled."""

    rebalance_id: int
    partitions: Partitions


class AssignPartitions(NamedTuple):
    """The current assignment of the member. The application acknowledges it."""

    rebalance_id: int
    assigned: Partitions
    added: Partitions


class PartitionsLost(NamedTuple):
    """Partitions that other members may own now."""

    partitions: Partitions
    reason: str


class CallDone(NamedTuple):
    """The one result of a call."""

    call_id: int
    value: Any = None
    error: ProxyError | None = None


class CommitRefused(NamedTuple):
    """Value of a commit's CallDone if some partitions were refused."""

    errors: Mapping[TopicPartition, ProxyError]
    left_out: Mapping[TopicPartition, Sequence[OffsetSpan]]

    def as_error(self) -> ProxyError:
        """Return the error to raise: PartitionLostError if there is one, with a note for each partition."""
        errors = sorted(self.errors.items())
        lost = [each for each, error in errors if isinstance(error, PartitionLostError)]
        chosen = PartitionLostError(f"no longer this member's: {shown(lost)}") if lost else errors[0][1]
        for each, error in errors:
            chosen.add_note(f"{each}: {error}")
        return chosen


class RangesLeftOut(NamedTuple):
    """Value of a commit's CallDone if some ranges are not committed."""

    left_out: Mapping[TopicPartition, Sequence[OffsetSpan]]


class BackgroundError(NamedTuple):
    """A failure that no call waits for. The next poll raises it."""

    error: ProxyError
    partitions: Partitions = NOTHING


class PositionFound(NamedTuple):
    """A start position was found. The metadata may list processed records above the committed offset."""

    partition: TopicPartition
    committed: OffsetAndMetadata
    main_from: int | None = None
    """Offset at which the main flow leaves older records to a second flow."""


class CatchUpChanged(NamedTuple):
    """Progress of a second flow, for logs and metrics."""

    partition: TopicPartition
    token: OffsetSpan
    remaining: int
    """Number of offsets. 0: the range is finished."""
    reason: str


class FetchArrived(NamedTuple):
    """The buffer holds records, among others of these partitions."""

    partitions: Partitions


BackgroundEvent = (
    RevokePartitions | RevokeCancelled | AssignPartitions | PartitionsLost | CallDone | BackgroundError | PositionFound
    | FetchArrived | CatchUpChanged
)  # fmt: skip


class AwaitAcknowledgements(NamedTuple):
    """Wait for the results of acknowledgements. The result is partition -> error of the broker, or None."""

    call_id: int
    only: Mapping[TopicPartition, set[int]] | None = None
    """Offsets to wait for. None means all acknowledgements that are due or in flight."""


ShareApplicationEvent = Subscribe | LeaveGroup | AwaitAcknowledgements
