"""Share sessions: which partitions a member fetches from one broker, and the epoch its next request must carry.

ShareFetch and ShareAcknowledge of one member to one broker use one sequence of epochs: 0 opens a session, each later
request carries the next number, -1 closes it (KIP-932; Kafka's ShareSessionCache and SharePartitionManager). A session
belongs to the connection that opened it and ends with it; a session opened anew on another connection survives the end
of the old one. Membership of the group plays no part here. Locks on records are kept by the share partitions: whoever
ends a session through `end` or `end_connection` gets its partitions back and releases them; reopening releases nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from proxy.wire.errors import ErrorCode
from proxy.wire.values import TopicIdPartition

INITIAL_EPOCH = 0
"""Opens a session."""
FINAL_EPOCH = -1
"""Closes a session."""
EPOCH_MAX = 2**31 - 1

SESSION_PARTITIONS_MAX = 100_000
"""Partitions in one session: far above any real subscription, so that a client cannot grow memory without end by naming
ever new ones. A request that would pass it gets INVALID_REQUEST."""


SESSIONS_PARTITIONS_MAX = 1_000_000
"""Partitions in all sessions together, about 250 MB. A request that would pass it gets SHARE_SESSION_LIMIT_REACHED."""


class SessionKey(NamedTuple):
    """One member of one group at one broker."""

    group_id: str
    member_id: str
    node_id: int


def next_epoch(epoch: int) -> int:
    """The epoch that follows: after the largest comes 1, since 0 opens a session."""
    return 1 if epoch >= EPOCH_MAX else epoch + 1


class Session:
    """The partitions of one share session, in the order in which they are to be served."""

    __slots__ = ("_unanswered", "connection_id", "epoch", "key", "request_epoch")

    def __init__(self, key: SessionKey, connection_id: int, partitions: Iterable[TopicIdPartition]) -> None:
        self.key = key
        self.connection_id = connection_id
        """The client connection that opened it."""
        self.epoch = next_epoch(INITIAL_EPOCH)
        """What the next request must carry."""
        self.request_epoch = INITIAL_EPOCH
        """What the request now in work carried."""
        self._unanswered: dict[TopicIdPartition, bool] = dict.fromkeys(partitions, True)

    @property
    def partitions(self) -> tuple[TopicIdPartition, ...]:
        """In the order they were added; one that gave records moves to the end."""
        return tuple(self._unanswered)

    def __len__(self) -> int:
        return len(self._unanswered)

    def __contains__(self, partition: TopicIdPartition) -> bool:
        return partition in self._unanswered

    def rotated(self) -> tuple[TopicIdPartition, ...]:
        """The partitions from another one on at each request, so that none starves."""
        partitions = self.partitions
        if not partitions or self.request_epoch < 1:
            return partitions
        start = self.request_epoch % len(partitions)
        return partitions[start:] + partitions[:start]

    def include(self, partition: TopicIdPartition, *, records: bool, error: bool) -> bool:
        """Whether the answer names a partition that has this result, and remember that it was said.

        Named are partitions with records or an error, new ones, and those whose last result was an error. Entries for
        acknowledgements are not asked about here: they are always named.
        """
        unanswered = self._unanswered.get(partition)
        if unanswered is None:
            return records or error
        if records:
            del self._unanswered[partition]
        self._unanswered[partition] = error
        return records or error or unanswered

    def update(self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        """Add, then forget: a partition named in both is gone."""
        for partition in added:
            self._unanswered.setdefault(partition, True)
        for partition in forgotten:
            self._unanswered.pop(partition, None)

    def advance(self) -> None:
        """Take the request that carried the expected epoch."""
        self.request_epoch = self.epoch
        self.epoch = next_epoch(self.epoch)


class ShareSessions:
    """All share sessions of this process; their number is limited per broker, as on a broker."""

    def __init__(self, sessions_max: int) -> None:
        self.sessions_max = sessions_max
        """Sessions at one broker (`group.share.max.share.sessions`)."""
        self.evicted = 0
        """Sessions that ended because their connection did."""
        self.partitions = 0
        """In all sessions together."""
        self._sessions: dict[SessionKey, Session] = {}
        self._by_node: dict[int, int] = {}
        self._by_connection: dict[int, set[SessionKey]] = {}
        self._by_group: dict[tuple[str, int], int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: SessionKey) -> Session | None:
        """The session of this key, if open."""
        return self._sessions.get(key)

    def lives(self, session: Session) -> bool:
        """Whether this very session is open."""
        return self._sessions.get(session.key) is session

    def group_sessions(self, group_id: str, node_id: int) -> int:
        """Open sessions of a group at a broker: with the last one its share partitions there are unloaded."""
        return self._by_group.get((group_id, node_id), 0)

    def fetch(
        self,
        key: SessionKey,
        epoch: int,
        connection_id: int,
        added: Iterable[TopicIdPartition],
        forgotten: Iterable[TopicIdPartition],
        has_acks: bool,
    ) -> Session | ErrorCode:
        """Judge a ShareFetch and take it in; a refusal changes nothing.

        SHARE_SESSION_LIMIT_REACHED is to be answered only after the request's MaxWaitMs. With epoch -1 the session is
        given as it is: the caller ends it (`end`) once the acknowledgements are done.
        """
        if epoch == INITIAL_EPOCH:
            return self._open(key, connection_id, added, has_acks)
        session = self._expected(key, epoch)
        if not isinstance(session, Session) or epoch == FINAL_EPOCH:
            return session
        news = list(added)
        before, more = len(session), sum(partition not in session for partition in news)
        if before + more > SESSION_PARTITIONS_MAX:
            return ErrorCode.INVALID_REQUEST
        if more and self.partitions + more > SESSIONS_PARTITIONS_MAX:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session.update(news, forgotten)
        self.partitions += len(session) - before
        session.advance()
        return session

    def acknowledge(self, key: SessionKey, epoch: int, connection_id: int) -> Session | ErrorCode:  # noqa: ARG002
        """Judge a ShareAcknowledge and take it in; epoch -1 as in `fetch`.

        Which connection asks does not matter while the session lives: a broker does not look either.
        """
        if epoch == INITIAL_EPOCH:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session = self._expected(key, epoch)
        if isinstance(session, Session) and epoch != FINAL_EPOCH:
            session.advance()
        return session

    def end(self, key: SessionKey) -> Session | None:
        """Forget a session; its partitions are for the caller to release."""
        session = self._sessions.pop(key, None)
        if session is None:
            return None
        self.partitions -= len(session)
        self._count(key, -1)
        keys = self._by_connection[session.connection_id]
        keys.discard(key)
        if not keys:
            del self._by_connection[session.connection_id]
        return session

    def end_connection(self, connection_id: int) -> tuple[Session, ...]:
        """A client connection ended: forget the sessions it opened that still live; the caller releases them."""
        keys = sorted(self._by_connection.get(connection_id, ()))
        ended = tuple(session for key in keys if (session := self.end(key)) is not None)
        self.evicted += len(ended)
        return ended

    def end_group(self, group_id: str) -> tuple[Session, ...]:
        """A group is deleted: its sessions, forgotten."""
        keys = sorted(key for key in self._sessions if key.group_id == group_id)
        return tuple(session for key in keys if (session := self.end(key)) is not None)

    def _open(
        self, key: SessionKey, connection_id: int, added: Iterable[TopicIdPartition], has_acks: bool
    ) -> Session | ErrorCode:
        if has_acks:
            return ErrorCode.INVALID_REQUEST
        session = Session(key, connection_id, added)
        if len(session) > SESSION_PARTITIONS_MAX:
            return ErrorCode.INVALID_REQUEST
        self.end(key)
        full = self.partitions + len(session) > SESSIONS_PARTITIONS_MAX
        if full or self._by_node.get(key.node_id, 0) >= self.sessions_max:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        self._sessions[key] = session
        self.partitions += len(session)
        self._by_connection.setdefault(connection_id, set()).add(key)
        self._count(key, 1)
        return session

    def _expected(self, key: SessionKey, epoch: int) -> Session | ErrorCode:
        session = self._sessions.get(key)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch not in (FINAL_EPOCH, session.epoch):
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        return session

    def _count(self, key: SessionKey, change: int) -> None:
        _add(self._by_node, key.node_id, change)
        _add(self._by_group, (key.group_id, key.node_id), change)


_K = TypeVar("_K")


def _add(counts: dict[_K, int], key: _K, change: int) -> None:
    counts[key] = counts.get(key, 0) + change
    if not counts[key]:
        del counts[key]
