"""What the two sides tell each other: application events in, background events out (consumer/README.md rule 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from proxy.consumer.partitions import NOTHING, Flow, OffsetAndMetadata, Partitions
from proxy.offsets.ranges import OffsetSpan
from proxy.wire.errors import ErrorCode, ProxyError
from proxy.wire.values import TopicPartition

# What managers and calls fail with


class ConsumerError(ProxyError):
    """A request of a consumer failed for good; the text names the request, what it was about, and the reason."""


class FatalGroupError(ConsumerError):
    """The group will not have this member as it is configured."""


class PartitionLostError(ConsumerError):
    """The partition is not this member's any more: what it says about it does not count."""


class BrokerRefused(ConsumerError):
    """A broker answered with an error that to try again does not mend."""

    def __init__(self, request: str, code: int, about: str = "", detail: str | None = None) -> None:
        self.code = ErrorCode.of(code)
        where = f" of {about}" if about else ""
        super().__init__(f"{request}{where}: {self.code.name}" + (f" ({detail})" if detail else ""))


# Application events


class Subscribe(NamedTuple):
    """Belong to the group with these topics; none means unsubscribe."""

    topics: frozenset[str]
    pattern: str | None = None
    """A regular expression over topic names instead."""


class Assign(NamedTuple):
    """Read these partitions without a group; none means unsubscribe."""

    partitions: Partitions


class LeaveGroup(NamedTuple):
    """Give everything up and leave."""

    call_id: int
    """As of every call: above 0, and of no other call."""


class Commit(NamedTuple):
    """Commit offsets; the result is None, or an error for each partition that was refused."""

    call_id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


class FetchCommitted(NamedTuple):
    """Ask what is committed; the result is partition -> OffsetAndMetadata, or None where nothing is."""

    call_id: int
    partitions: Partitions


class ListOffsets(NamedTuple):
    """Ask for offsets by timestamp; the result is partition -> FoundOffset."""

    call_id: int
    timestamps: Mapping[TopicPartition, int]
    """Milliseconds since 1970; -1 the end, -2 the begin, -3 the largest timestamp."""


class AckPartitionsRevoked(NamedTuple):
    """The application has let go of these."""

    rebalance_id: int
    partitions: Partitions


class AckPartitionsAssigned(NamedTuple):
    """The application knows what it has been given."""

    rebalance_id: int


class UpdateMetadata(NamedTuple):
    """Look at the cluster again."""


class Seek(NamedTuple):
    """Go on from there."""

    partition: TopicPartition
    offset: int
    flow: Flow = Flow.MAIN
    """CHILD: a second flow reads again from its place."""


class Pause(NamedTuple):
    """Fetch no more of these."""

    partitions: Partitions


class Resume(NamedTuple):
    """Fetch these again."""

    partitions: Partitions


ApplicationEvent = (
    Subscribe | Assign | LeaveGroup | Commit | FetchCommitted | ListOffsets | AckPartitionsRevoked
    | AckPartitionsAssigned | UpdateMetadata | Seek | Pause | Resume
)  # fmt: skip

# Background events


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokePartitions:
    """These are to be revoked; the application acknowledges when it has let go."""

    rebalance_id: int
    partitions: Partitions
    deadline: float
    """When what is not acknowledged is given up as lost; seconds, monotonic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeCancelled:
    """These are not to be revoked any more."""

    rebalance_id: int
    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignPartitions:
    """What the member has now; the application acknowledges."""

    rebalance_id: int
    assigned: Partitions
    """All partitions that are assigned now."""
    added: Partitions
    """What is new in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsLost:
    """Others have these, or may have them."""

    partitions: Partitions
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDone:
    """The one result of a call."""

    call_id: int
    value: Any = None
    error: ProxyError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRefused:
    """What CallDone of a commit carries where partitions were refused; the others are committed."""

    errors: Mapping[TopicPartition, ProxyError]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundError:
    """Something failed that no call waits for; the next poll raises it."""

    error: ProxyError
    partitions: Partitions = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionFound:
    """A partition goes on at what is committed; the metadata may say which records above it are done."""

    partition: TopicPartition
    committed: OffsetAndMetadata
    main_from: int | None = None
    """Where the main flow goes on, and leaves what is before to a second one; None: there is only one flow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUpChanged:
    """What a second flow reads: for logs and metrics."""

    partition: TopicPartition
    token: OffsetSpan
    remaining: int
    """Offsets of it that are to be read; 0: it has come to its end."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchArrived:
    """There are records in the buffer, of these partitions among others."""

    partitions: Partitions


BackgroundEvent = (
    RevokePartitions | RevokeCancelled | AssignPartitions | PartitionsLost | CallDone | BackgroundError | PositionFound
    | FetchArrived | CatchUpChanged
)  # fmt: skip
