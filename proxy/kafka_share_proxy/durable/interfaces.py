"""Journal: the interface through which state that outlives the process becomes durable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from kafka_share_proxy.durable.coming_appends import ComingAppends
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError

K_contra = TypeVar("K_contra", contravariant=True)
"""Key of which only the latest value counts (durable/README.md rule 3)."""


RESPONSE_MAX_S = 25.0
"""Maximum seconds that a client waits for a write. Then it gets a retriable error, while the append continues: its
outcome is unknown while the leader of the state partition, or an in-sync replica, is away. After a crash that takes 9 s
(broker.session.timeout.ms), and 14 s were seen when the controller itself crashed. With a shorter wait a client repeats
what is stored by then, and gets INVALID_RECORD_STATE for acknowledgements. Clients wait for 30 s (request.timeout.ms).
"""


class JournalRefused(ProxyError):
    """A refusal: nothing of the append is or ever will be stored.

    Exception: if ownership is lost (NOT_COORDINATOR), the outcome is unknown here, and memory is no longer served.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code


class Journal(Protocol[K_contra]):
    """Store in which state becomes durable before any client gets a response about it."""

    @property
    def coming(self) -> ComingAppends:
        """Announced appends, which an append that could go waits for."""

    def append(self, records: Sequence[tuple[K_contra, bytes | None]]) -> Promise[None]:
        """Store the values (None deletes the key), all or none. The promise is settled once they are durable.

        Fails with JournalRefused. An append with an unknown outcome is repeated until the journal knows.
        """
