"""Share sessions: the partitions that a member fetches from one broker, and the epoch of its next request.

Epochs: sharegroups/README.md rule 12 (KIP-932; Kafka's ShareSessionCache and SharePartitionManager). A session belongs
to the connection that opened it and ends with it. One reopened on another connection survives the end of the old one.
The caller of `end` or `end_connection` releases the locks of the session's partitions. Reopening releases nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1

SESSION_PARTITIONS_MAX = 100_000
"""Maximum number of partitions in one session, far above any real subscription. A request beyond it gets
INVALID_REQUEST.
"""


SESSIONS_PARTITIONS_MAX = 1_000_000
"""Maximum number of partitions in all sessions together, about 250 MB. A request beyond it gets
SHARE_SESSION_LIMIT_REACHED.
"""


class SessionKey(NamedTuple):
    """One member of one group at one broker."""

    group_id: str
    member_id: str
    node_id: int


def next_epoch(epoch: int) -> int:
    """Return the epoch after this one. The largest is followed by 1, since 0 opens a session."""
    return 1 if epoch >= EPOCH_MAX else epoch + 1


class Session:
    """The partitions of one share session, in the order in which they are served."""

    __slots__ = ("_in_flight", "connection_id", "epoch", "key", "request_epoch", "surveyed_at")

    def __init__(self, key: SessionKey, connection_id: int, partitions: Iterable[TopicIdPartition]) -> None:
        self.key = key
        self.connection_id = connection_id
        self.epoch = next_epoch(INITIAL_EPOCH)
        """Epoch that the next request must carry."""
        self.request_epoch = INITIAL_EPOCH
        self.surveyed_at = -inf
        """Monotonic time in seconds at which a fetch last checked all partitions."""
        self._in_flight: dict[TopicIdPartition, bool] = dict.fromkeys(partitions, True)

    @property
    def partitions(self) -> tuple[TopicIdPartition, ...]:
        """Partitions in the order they were added. One with records in a response moves to the end."""
        return tuple(self._in_flight)

    def __len__(self) -> int:
        return len(self._in_flight)

    def __contains__(self, partition: TopicIdPartition) -> bool:
        return partition in self._in_flight

    def rotated(self) -> tuple[TopicIdPartition, ...]:
        """Return the partitions, starting with a different one for each request, so that none starves."""
        partitions = self.partitions
        if not partitions or self.request_epoch < 1:
            return partitions
        start = self.request_epoch % len(partitions)
        return partitions[start:] + partitions[:start]

    def include(self, partition: TopicIdPartition, *, records: bool, error: bool) -> bool:
        """Return True if the response includes a partition with this result, and record that it does.

        Partitions with acknowledgements are always included, and are not checked here (sharegroups/README.md rule 16).
        """
        in_flight = self._in_flight.get(partition)
        if in_flight is None:
            return records or error
        if records:
            del self._in_flight[partition]
        self._in_flight[partition] = error
        return records or error or in_flight

    def update(self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        """Add, then remove: a partition in both is removed."""
        for partition in added:
            self._in_flight.setdefault(partition, True)
        for partition in forgotten:
            self._in_flight.pop(partition, None)

    def advance(self) -> None:
        self.request_epoch = self.epoch
        self.epoch = next_epoch(self.epoch)


class ShareSessions:
    """All share sessions of this process. Their number is limited per broker, as on a broker."""

    def __init__(self, sessions_max: int) -> None:
        self.sessions_max = sessions_max
        """Maximum number of sessions at one broker (`group.share.max.share.sessions`)."""
        self.evicted = 0
        """Number of sessions that ended because their connection closed."""
        self.partitions = 0
        self._sessions: dict[SessionKey, Session] = {}
        self._by_node: dict[int, int] = {}
        self._by_connection: dict[int, set[SessionKey]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: SessionKey) -> Session | None:
        return self._sessions.get(key)

    def partitions_of(self, key: SessionKey) -> tuple[TopicIdPartition, ...]:
        return () if (session := self._sessions.get(key)) is None else session.partitions

    def is_open(self, session: Session) -> bool:
        """Return True unless the session has ended or was replaced."""
        return self._sessions.get(session.key) is session

    def fetch(
        self,
        key: SessionKey,
        epoch: int,
        connection_id: int,
        added: Iterable[TopicIdPartition],
        forgotten: Iterable[TopicIdPartition],
        has_acks: bool,
    ) -> Session | ErrorCode:
        """Check a ShareFetch and apply it to the session. A refusal changes nothing.

        The caller sends SHARE_SESSION_LIMIT_REACHED only after the request's MaxWaitMs. With epoch -1 the session is
        returned unchanged: the caller ends it (`end`) after the acknowledgements.
        """
        if epoch == INITIAL_EPOCH:
            return self._open(key, connection_id, added, has_acks)
        session = self._expected(key, epoch)
        if not isinstance(session, Session) or epoch == FINAL_EPOCH:
            return session
        new_partitions = list(added)
        size_before, added_count = len(session), sum(partition not in session for partition in new_partitions)
        if size_before + added_count > SESSION_PARTITIONS_MAX:
            return ErrorCode.INVALID_REQUEST
        if added_count and self.partitions + added_count > SESSIONS_PARTITIONS_MAX:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session.update(new_partitions, forgotten)
        self.partitions += len(session) - size_before
        session.advance()
        return session

    def acknowledge(self, key: SessionKey, epoch: int, connection_id: int) -> Session | ErrorCode:  # noqa: ARG002
        """Check a ShareAcknowledge and apply it to the session, with epoch -1 as in `fetch`.

        Any connection may send it while the session is open: a broker does not check the connection either.
        """
        if epoch == INITIAL_EPOCH:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session = self._expected(key, epoch)
        if isinstance(session, Session) and epoch != FINAL_EPOCH:
            session.advance()
        return session

    def end(self, key: SessionKey) -> Session | None:
        """Remove a session. The caller releases its partitions."""
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

    def has_connection(self, connection_id: int) -> bool:
        """True if an open session belongs to this client connection."""
        return connection_id in self._by_connection

    def end_connection(self, connection_id: int) -> tuple[Session, ...]:
        """Remove the open sessions of a closed client connection. The caller releases their partitions."""
        keys = sorted(self._by_connection.get(connection_id, ()))
        ended = tuple(session for key in keys if (session := self.end(key)) is not None)
        self.evicted += len(ended)
        return ended

    def end_group(self, group_id: str) -> tuple[Session, ...]:
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
        is_full = self.partitions + len(session) > SESSIONS_PARTITIONS_MAX
        if is_full or self._by_node.get(key.node_id, 0) >= self.sessions_max:
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
        count = self._by_node.get(key.node_id, 0) + change
        if count:
            self._by_node[key.node_id] = count
        else:
            del self._by_node[key.node_id]
