"""Tap of one client connection: its bytes go through Python while they are traced (forwarding/README.md rule 50)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kafka_share_proxy.forwarding.client_trace.exchanges import Entry, Exchanges
from kafka_share_proxy.forwarding.client_trace.frame_collector import CollectedFrame, FrameCollector
from kafka_share_proxy.forwarding.client_trace.tapped_transport import TappedTransport
from kafka_share_proxy.loop import faults
from kafka_share_proxy.loop.interfaces import Transport
from kafka_share_proxy.loop.transports import PlainTransport, TlsTransport
from kafka_share_proxy.wire.errors import RemoteProtocolError

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.connection import ForwardedConnection

FAILED = "trace-failed"
FRAME_BYTES_MAX = 1 << 20
"""Larger requests and responses are not decoded."""

Record = Callable[["Tap", Entry], None]


class Tap:
    """Observer of both directions, from a position between two walks on."""

    def __init__(self, connection: ForwardedConnection, record: Record) -> None:
        """`record` is called with each request and response."""
        self.connection = connection
        self._record = record
        self._now = connection.plane.reactor.now
        requests, responses = connection.requests, connection.responses
        gathering = requests.gathering
        self._requests = FrameCollector(requests.missing if gathering is None else gathering.missing, FRAME_BYTES_MAX)
        self._responses = FrameCollector(connection.client.unsent + responses.to_come, FRAME_BYTES_MAX)
        self._exchanges = Exchanges(lambda: connection.requests.raw, lambda: connection.plane.routes)
        self._is_readable = True
        """False after bytes that could not be decoded: nothing after them is traced."""
        self._tapped: TappedTransport | None = None

    def begin(self) -> None:
        """Observe from now on. C no longer forwards the bytes of this connection."""
        connection, transport = self.connection, self.connection.client.transport
        if transport is None:
            return
        self._tapped = TappedTransport(transport, self._received, self._sent)
        if isinstance(transport, PlainTransport | TlsTransport):
            connection.plane.reactor.stop_passing(transport.fd)
            connection.requests.send_later = None
            broker = connection.upstream.socket and connection.upstream.socket.transport
            if isinstance(broker, PlainTransport):
                connection.plane.reactor.stop_passing(broker.fd)
        _use(connection, self._tapped)
        if connection.requests.unread:
            self._received(connection.requests.unread)

    def end(self) -> None:
        """Restore the connection. Must not be called within a walk."""
        connection, tapped = self.connection, self._tapped
        if tapped is None or connection.closed:
            return
        self._tapped = None
        _use(connection, tapped.transport)
        broker = connection.upstream.socket
        if broker is not None and broker.transport is not None:
            connection.upstream.let_pass(broker.transport)

    def _received(self, data: memoryview) -> None:
        self._feed(self._requests, data, self._exchanges.request)

    def _sent(self, data: memoryview) -> None:
        self._feed(self._responses, data, self._exchanges.response)

    def _feed(
        self, collector: FrameCollector, data: memoryview, entry: Callable[[CollectedFrame, float], Entry]
    ) -> None:
        if self._is_readable:
            faults.guard(self, partial(self._record_all, collector, data, entry))

    def _record_all(
        self, collector: FrameCollector, data: memoryview, entry: Callable[[CollectedFrame, float], Entry]
    ) -> None:
        for frame in collector.feed(data):
            self._record(self, entry(frame, self._now()))

    def failed(self, error: Exception) -> None:
        """Trace no further. A mistake here must not end the connection; bytes that are no frames end it in the walk."""
        self._is_readable = False
        if not isinstance(error, RemoteProtocolError):
            self.connection.plane.notes(FAILED, connection=self.connection.id, error=error)


def _use(connection: ForwardedConnection, transport: Transport) -> None:
    connection.client.open(transport)
    connection.requests.receive_by(transport)
    connection.responses.send_by(transport)
