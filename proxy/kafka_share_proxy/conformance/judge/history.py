"""Everything that the judge remembers of the clients of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_share_proxy.conformance.judge.connection_history import ConnectionHistory
from kafka_share_proxy.conformance.judge.events import ConnectionEnded, ReceivedFrame, ReceivedRequest, SentResponse
from kafka_share_proxy.conformance.judge.member_history import MemberHistories
from kafka_share_proxy.conformance.judge.producer_history import ProducerHistories
from kafka_share_proxy.conformance.judge.share_history import ShareHistories
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

FETCH_SESSIONS_MAX = 10_000
SESSION_ENDS = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})
FETCH_EPOCH_MAX = (1 << 31) - 1


@dataclass(slots=True)
class History:
    """Facts that follow from the requests and responses so far."""

    offered: Mapping[int, tuple[int, int]]
    """Versions that the cluster offers, by API key."""
    connections: dict[int, ConnectionHistory] = field(default_factory=dict)
    """Open connections by number."""
    members: MemberHistories = field(default_factory=MemberHistories)
    shares: ShareHistories = field(default_factory=ShareHistories)
    producers: ProducerHistories = field(default_factory=ProducerHistories)
    fetch_epochs: dict[tuple[int, int], int] = field(default_factory=dict)
    """Next epoch of a fetch session, by node and session id (KIP-227)."""

    def connection(self, event: ReceivedFrame) -> ConnectionHistory:
        """Return the history of the connection of a request."""
        if event.connection not in self.connections:
            self.connections[event.connection] = ConnectionHistory(event.connection, event.host)
        return self.connections[event.connection]

    def apply(self, event: Any) -> None:
        """Remember an event, after the rules have checked it."""
        if isinstance(event, ReceivedFrame):
            self._on_frame(event)
        elif isinstance(event, SentResponse):
            self._on_response(event)
        elif isinstance(event, ConnectionEnded):
            self._on_ended(event)

    def _on_ended(self, event: ConnectionEnded) -> None:
        connection = self.connections.pop(event.connection, None)
        if connection is not None and connection.pending is not None:
            self.producers.on_unknown_outcome(connection.pending)
            self.members.on_unknown_outcome(connection.pending)
        self.shares.on_ended(event)

    def _on_frame(self, event: ReceivedFrame) -> None:
        connection = self.connection(event)
        connection.on_frame(event)
        if isinstance(event, ReceivedRequest):
            connection.on_request(event)
            self.members.on_request(event)
            self.producers.on_request(event)
            self._reset_streaks(event)

    def _reset_streaks(self, event: ReceivedRequest) -> None:
        """Reset the counts of errors that a lookup ends, on all connections of the client."""
        if event.key not in (ApiKey.METADATA, ApiKey.FIND_COORDINATOR):
            return
        for connection in self.connections.values():
            if (connection.host, connection.client_id) == (event.host, event.client_id):
                if event.key == ApiKey.METADATA:
                    connection.wrong_leader = 0
                else:
                    connection.wrong_coordinator = 0

    def _on_response(self, event: SentResponse) -> None:
        if (connection := self.connections.get(event.received.connection)) is not None:
            connection.on_response(event)
        if event.response is not None:
            self.members.on_response(event)
            self.shares.on_response(event)
            if event.received.key == ApiKey.FETCH and event.received.version >= 7:
                self._on_fetch(event)
        self.producers.on_response(event)

    def _on_fetch(self, event: SentResponse) -> None:
        request, response = event.received.request, event.response
        session_id = getattr(response, "session_id", 0)
        if getattr(response, "error_code", 0) in SESSION_ENDS or not event.delivered:
            self.fetch_epochs.pop((event.received.node, request.session_id), None)
            self.fetch_epochs.pop((event.received.node, session_id), None)
        elif session_id:
            while len(self.fetch_epochs) >= FETCH_SESSIONS_MAX:
                del self.fetch_epochs[next(iter(self.fetch_epochs))]
            epoch = request.session_epoch
            self.fetch_epochs[event.received.node, session_id] = 1 if epoch == FETCH_EPOCH_MAX else max(epoch, 0) + 1
