"""State that outlives the process: where a piece of it becomes durable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from proxy.durable.coming_appends import ComingAppends
from proxy.loop.promise import Promise
from proxy.wire.errors import ErrorCode, ProxyError

K_contra = TypeVar("K_contra", contravariant=True)
"""What names one piece of the state; its latest value is all that counts (durable/README.md rule 3)."""


ANSWER_MAX_S = 25.0
"""Whoever waits longer for a write is told to come again, while the append goes on: its outcome may be unknown for as
long as the leader of the state partition, or a replica in sync, is away. After a crash that is 9 s until the controller
has noticed (broker.session.timeout.ms), 14 s were seen where the controller crashed itself. A client that is told
sooner repeats what is stored by then; of acknowledgements it hears INVALID_RECORD_STATE. Clients wait for 30 s
(request.timeout.ms)."""


class JournalRefused(ProxyError):
    """A refusal: nothing of that append is or ever will be stored.

    Except where ownership is lost (NOT_COORDINATOR): nobody here knows then, and memory is not served from any more.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code


class Journal(Protocol[K_contra]):
    """Where state becomes durable before anybody is told about it."""

    @property
    def coming(self) -> ComingAppends:
        """Who is about to append says so here: appends that could go wait a moment, to go together."""

    def append(self, records: Sequence[tuple[K_contra, bytes | None]]) -> Promise[None]:
        """Store the values (None deletes the key), all or none; settled once they are durable.

        Fails with JournalRefused. An unknown outcome is the journal's to resolve: it repeats until it knows.
        """
