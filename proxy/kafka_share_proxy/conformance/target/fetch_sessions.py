"""Fetch sessions of one node (KIP-227; FetchSession and FetchManager of Kafka 4.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kafka_share_proxy.conformance.target.seeded import SeededBytes
from kafka_share_proxy.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafka_share_proxy.wire.definitions import messages

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
EPOCH_MAX = (1 << 31) - 1
EVICTION_S = 120.0
"""Seconds after its last use when a session may be replaced by another (MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS)."""


class FetchedKey(NamedTuple):
    """A partition of a session: by topic id from version 13 on, else by name."""

    topic: str
    topic_id: bytes
    partition: int


@dataclass(eq=False)
class CachedPartition:
    """A partition of a session, with what it returned last."""

    key: FetchedKey
    request: messages.FetchRequest.FetchPartition
    high_watermark: int = -1
    log_start: int = -1

    def must_respond(self, data: messages.FetchResponse.PartitionData) -> bool:
        """Return True if an incremental response includes this result, and remember the result."""
        changed = bool(data.records) or data.error_code != ErrorCode.NONE or data.diverging_epoch.epoch >= 0
        changed |= (data.high_watermark, data.log_start_offset) != (self.high_watermark, self.log_start)
        self.high_watermark, self.log_start = data.high_watermark, data.log_start_offset
        if data.error_code != ErrorCode.NONE:
            self.high_watermark = -1
        return changed


@dataclass(eq=False)
class FetchSession:
    """Partitions of one client at one node. Session id 0: a request without a session."""

    session_id: int
    uses_ids: bool
    partitions: dict[FetchedKey, CachedPartition]
    epoch: int = 1
    """Epoch of the next request."""
    used_at: float = 0.0
    is_incremental: bool = False
    """True if the present request names only changes."""

    def update(self, requested: Iterable[CachedPartition], forgotten: Iterable[FetchedKey]) -> None:
        for each in requested:
            known = self.partitions.get(each.key)
            if known is None:
                self.partitions[each.key] = each
            else:
                known.request = each.request
        for key in forgotten:
            self.partitions.pop(key, None)

    def move_to_end(self, key: FetchedKey) -> None:
        """Serve a partition that had records after the others."""
        cached = self.partitions.pop(key, None)
        if cached is not None:
            self.partitions[key] = cached


class FetchSessions:
    """All sessions of one node."""

    def __init__(self, slots: int, seeded: SeededBytes) -> None:
        self._slots = slots
        self._seeded = seeded
        self._sessions: dict[int, FetchSession] = {}

    @property
    def sessions(self) -> Mapping[int, FetchSession]:
        return self._sessions

    def open(
        self,
        request: messages.FetchRequest,
        requested: list[CachedPartition],
        forgotten: list[FetchedKey],
        uses_ids: bool,
        now: float,
    ) -> FetchSession | ErrorCode:
        """Return the session of a request, or the error that refuses it."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            session = FetchSession(0, uses_ids, {each.key: each for each in requested})
            return session if request.session_epoch == FINAL_EPOCH else self._create(session, now)
        session_or_none = self._sessions.get(request.session_id)
        if session_or_none is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return self._continue(session_or_none, request, requested, forgotten, uses_ids, now)

    def _continue(
        self,
        session: FetchSession,
        request: messages.FetchRequest,
        requested: list[CachedPartition],
        forgotten: list[FetchedKey],
        uses_ids: bool,
        now: float,
    ) -> FetchSession | ErrorCode:
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_ids != uses_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.update(requested, forgotten)
        if not session.partitions:
            del self._sessions[session.session_id]
            return FetchSession(0, uses_ids, {})
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        session.used_at, session.is_incremental = now, True
        return session

    def _create(self, session: FetchSession, now: float) -> FetchSession:
        """Keep a session if there is a free slot or an idle one."""
        if not session.partitions:
            return session
        if len(self._sessions) >= self._slots:
            oldest = min(self._sessions.values(), key=lambda each: each.used_at)
            if now - oldest.used_at <= EVICTION_S:
                return session
            del self._sessions[oldest.session_id]
        while session.session_id in (0, *self._sessions):
            session.session_id = 1 + self._seeded.number(EPOCH_MAX)
        session.used_at = now
        self._sessions[session.session_id] = session
        return session
