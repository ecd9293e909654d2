"""History of share sessions: epochs, and offsets that a member holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kafka_share_proxy.conformance.judge.events import ConnectionEnded, ReceivedRequest, SentResponse
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

SHARE_KEYS = frozenset({ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE})
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
EPOCH_MAX = (1 << 31) - 1
SESSIONS_MAX = 10_000
HELD_MAX = 100_000
"""Maximum number of offsets of one partition that are remembered as held by one member."""
RENEW = 4


@dataclass(slots=True)
class ShareSessionHistory:
    """The share session of one member at one node."""

    group_id: str
    member_id: str
    node: int
    connection: int
    next_epoch: int
    doubtful: bool = False
    """True if the member could not read a response."""
    closed: bool = False
    abandoned: bool = False
    """True if the client closed the connection before the session."""
    held: dict[TopicIdPartition, set[int]] = field(default_factory=dict)


@dataclass(slots=True)
class ShareHistories:
    """All share sessions."""

    sessions: dict[tuple[str, str, int], ShareSessionHistory] = field(default_factory=dict)

    def find(self, event: ReceivedRequest) -> ShareSessionHistory | None:
        """Return the session of a ShareFetch or ShareAcknowledge. None if it does not exist or was closed."""
        session = self.sessions.get(_key(event))
        return None if session is None or session.closed or session.abandoned else session

    def on_response(self, event: SentResponse) -> None:
        if event.received.key not in SHARE_KEYS:
            return
        response: Any = event.response
        if response.error_code != ErrorCode.NONE:
            self._on_error(event, response.error_code)
            return
        session = self._followed(event)
        session.doubtful = not event.delivered
        for partition, batches in acknowledged(event.received):
            for batch in batches:
                if RENEW not in batch.acknowledge_types:
                    _remove(session.held.get(partition, set()), batch.first_offset, batch.last_offset)
        if event.received.key == ApiKey.SHARE_FETCH:
            _acquire(session, response)

    def on_ended(self, event: ConnectionEnded) -> None:
        """Close the sessions of the connection: the node does so as well (KIP-932)."""
        for key, session in list(self.sessions.items()):
            if session.connection == event.connection and not session.closed:
                session.abandoned = event.by_client and not session.doubtful
                if not session.abandoned:
                    del self.sessions[key]

    def _followed(self, event: SentResponse) -> ShareSessionHistory:
        """Return the session with its next epoch."""
        request, key = event.received.request, _key(event.received)
        epoch = request.share_session_epoch
        session = self.sessions.get(key)
        if session is None or epoch == INITIAL_EPOCH:
            while len(self.sessions) >= SESSIONS_MAX:
                del self.sessions[next(iter(self.sessions))]
            session = ShareSessionHistory(*key, event.received.connection, epoch)
            self.sessions[key] = session
        session.closed, session.abandoned = epoch == FINAL_EPOCH, False
        session.next_epoch = 1 if epoch in (EPOCH_MAX, FINAL_EPOCH) else epoch + 1
        session.connection = event.received.connection
        if session.closed:
            session.held.clear()
        return session

    def _on_error(self, event: SentResponse, code: int) -> None:
        session = self.sessions.get(_key(event.received))
        if session is not None:
            session.doubtful = True
            if code in (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH):
                del self.sessions[_key(event.received)]


def acknowledged(event: ReceivedRequest) -> Iterator[tuple[TopicIdPartition, list[Any]]]:
    """Yield the partitions of a ShareFetch or ShareAcknowledge with their acknowledgement batches."""
    for topic in event.request.topics:
        for partition in topic.partitions:
            if partition.acknowledgement_batches:
                place = TopicIdPartition(bytes(topic.topic_id), partition.partition_index)
                yield place, partition.acknowledgement_batches


def _acquire(session: ShareSessionHistory, response: Any) -> None:
    for topic in response.responses:
        for partition in topic.partitions:
            place = TopicIdPartition(bytes(topic.topic_id), partition.partition_index)
            held = session.held.setdefault(place, set())
            for acquired in partition.acquired_records:
                room = max(0, HELD_MAX - len(held))
                last = min(acquired.last_offset, acquired.first_offset + room - 1)
                held.update(range(acquired.first_offset, last + 1))


def _remove(held: set[int], first: int, last: int) -> None:
    if last - first > len(held):
        held -= {offset for offset in held if first <= offset <= last}
    else:
        held.difference_update(range(first, last + 1))


def _key(event: ReceivedRequest) -> tuple[str, str, int]:
    return event.request.group_id or "", event.request.member_id or "", event.node
