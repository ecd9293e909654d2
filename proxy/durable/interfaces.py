"""State that outlives the process: how a piece of it is named, and where it becomes durable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from proxy.loop.promise import Promise
from proxy.wire.errors import ErrorCode, ProxyError
from proxy.wire.values import ZERO_UUID


class StateKey(NamedTuple):
    """Names one piece of durable state; its latest value is all that counts (durable/README.md rule 3)."""

    kind: Literal["partition", "group", "settings"]
    group_id: str
    topic_id: bytes = ZERO_UUID
    """Only of kind "partition"."""
    partition: int = -1
    """Only of kind "partition"."""


class JournalRefused(ProxyError):
    """A refusal: nothing of that append is or ever will be stored.

    Except where ownership is lost (NOT_COORDINATOR): nobody here knows then, and memory is not served from any more.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code


class Journal(Protocol):
    """Where state becomes durable before anybody is told about it."""

    def append(self, records: Sequence[tuple[StateKey, bytes | None]]) -> Promise[None]:
        """Store the values (None deletes the key), all or none; settled once they are durable.

        Fails with JournalRefused. An unknown outcome is the journal's to resolve: it repeats until it knows.
        """
