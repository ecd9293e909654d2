"""Journal: the interface through which state that outlives the process becomes durable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

from kafka_share_proxy.durable.coming_appends import ComingAppends
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError
from kafka_share_proxy.wire.records.records import Record, bytes_max

K_contra = TypeVar("K_contra", contravariant=True)


RESPONSE_MAX_S = 25.0
"""Maximum seconds that a client waits for a write. Then it gets a retriable error, while the append continues. After a
crash of the leader that takes 9 s (broker.session.timeout.ms), 14 s were seen when the controller crashed. With a
shorter wait a client repeats what is stored, and gets INVALID_RECORD_STATE. Clients wait for 30 s (request.timeout.ms).
"""


class JournalRefused(ProxyError):
    """Nothing of the append is or ever will be stored.

    Exception: after NOT_COORDINATOR the outcome is unknown here, and memory is no longer served.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code


@dataclass(frozen=True, slots=True)
class OutsideRecords:
    """Records for a partition of another topic, visible together with an append or not at all."""

    topic: str
    partition: int
    records: Sequence[Record]
    size: int = field(init=False)
    """Maximum bytes of a batch of the records that is not compressed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", bytes_max(self.records))


class Journal(Protocol[K_contra]):
    """Store in which state becomes durable before a client gets a response."""

    @property
    def coming(self) -> ComingAppends: ...

    def append(self, records: Sequence[tuple[K_contra, bytes | None]]) -> Promise[None]:
        """Store the values (None deletes the key), all or none. Settled once they are durable. Fails with
        JournalRefused.
        """


@runtime_checkable
class TransactionalJournal(Journal[K_contra], Protocol[K_contra]):
    """Journal that can store values together with records of other topics."""

    def append_with(
        self, records: Sequence[tuple[K_contra, bytes | None]], outside: Sequence[OutsideRecords]
    ) -> Promise[None]:
        """Store the values and the records of other topics in one transaction. Otherwise as `append`."""
