"""A client connection and its own upstream connection.

Each direction (`ClientToBroker`, `BrokerToClient`) walks the frame boundaries in the shared receive buffer, and
`pending` stores what the next response belongs to. Their `ready` is the fast path: one read, one walk, one write, for
any number of whole frames. Everything else (a gathered frame, a peer that does not accept bytes, a local request, SASL,
the end) clears `flows`. The slow path then handles it, until `update` finds the way clear again.

Code inside a walk must not use the receive buffer. Handlers therefore start after a walk, the proxy's own responses are
delivered by `call_soon`, and kept bytes are walked in separate memory (`kept_bytes`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka_share_proxy.brokers import rights
from kafka_share_proxy.brokers.connection_slots import SlotValues
from kafka_share_proxy.forwarding.broker_to_client import BrokerToClient
from kafka_share_proxy.forwarding.client_software import ClientSoftware
from kafka_share_proxy.forwarding.client_to_broker import ClientToBroker
from kafka_share_proxy.forwarding.connection_state import (
    CLOSED,
    FAILED,
    HANDSHAKING,
    MOVING,
    MUTED,
    PASSING,
    RESPONDING,
    Progress,
    event_of,
)
from kafka_share_proxy.forwarding.connection_timeouts import Timeouts
from kafka_share_proxy.forwarding.dispatch import request_dispatch
from kafka_share_proxy.forwarding.held_bytes import HeldBytes
from kafka_share_proxy.forwarding.peer_socket import PeerSocket
from kafka_share_proxy.forwarding.sasl import NOT_AUTHENTICATED, Sasl
from kafka_share_proxy.forwarding.served import injected_requests
from kafka_share_proxy.forwarding.served.injected_requests import InjectedRequests
from kafka_share_proxy.forwarding.served.interfaces import ExpectedResponse
from kafka_share_proxy.forwarding.served.local_requests import LocalRequests
from kafka_share_proxy.forwarding.upstream_connection import UpstreamConnection
from kafka_share_proxy.forwarding.walk.client_requests import NOTHING_PASSES, Passing
from kafka_share_proxy.forwarding.walk.walking import Pending
from kafka_share_proxy.loop.interfaces import Data, Transport
from kafka_share_proxy.loop.polling import PEER_LEFT, READ, WRITE
from kafka_share_proxy.loop.promise import Promise, on_behalf_of
from kafka_share_proxy.wire.codec.frames import Pieces, ResponseFrame
from kafka_share_proxy.wire.errors import RemoteProtocolError, RequestRefused, UpstreamLost
from kafka_share_proxy.wire.values import UNKNOWN_NODE, Address

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.data_plane import Plane
    from kafka_share_proxy.forwarding.ports import Port

_SILENT = (HANDSHAKING, MOVING, CLOSED)
"""States without requests of the proxy. A tuple: enum look-ups are slow (CPython 3.11)."""


class ForwardedConnection:
    """See brokers.interfaces.Connection."""

    __slots__ = (
        "_drain_reason",
        "_ends_requests",
        "_injected",
        "_local",
        "_on_close",
        "_send_away",
        "client",
        "client_host",
        "closed",
        "context",
        "held",
        "id",
        "is_bootstrap",
        "is_known",
        "moves",
        "pending",
        "plane",
        "port",
        "reached",
        "requests",
        "responses",
        "sasl",
        "slot_values",
        "software",
        "state",
        "timeouts",
        "upstream",
    )

    def __init__(self, plane: Plane, port: Port, transport: Transport, client_host: str) -> None:
        self.plane = plane
        self.port = port
        self.context = port.context
        self.is_bootstrap = port.node_id == UNKNOWN_NODE
        self.id = plane.next_id()
        self.client_host = client_host
        self.state = Progress(PASSING)
        self.closed = False
        self.client = PeerSocket(transport)
        self.upstream = UpstreamConnection(self)
        self.pending = Pending()
        self.requests = ClientToBroker(self, transport, self.pending)
        self.responses = BrokerToClient(self, transport, self.pending)
        self.sasl = Sasl()
        self.is_known = plane.introduction is None
        """True once the broker has served a request that requires authentication."""
        self.software: ClientSoftware | None = None
        """Client software of the last ApiVersions request. None if there was none, or it could not be read."""
        self.held = HeldBytes(self, plane)
        self.slot_values: SlotValues = {}
        self._local: LocalRequests | None = None
        self._injected: InjectedRequests | None = None
        self._on_close: list[Callable[[], None]] | None = None
        self._drain_reason = ""
        self._send_away: Callable[[ForwardedConnection], bool] | None = None
        """See `give_way`."""
        self._ends_requests = False
        """True while one of the two is set: no further request is read."""
        self.reached: Address | None = None
        """Address of the broker. None until the upstream connection is established."""
        self.moves = 0
        """Number of processes that had this connection before."""
        self.timeouts = Timeouts(plane.limits, plane.reactor.now(), self.id)
        transport.attach(self.requests.ready, READ)

    # brokers.interfaces.Connection

    @property
    def node_id(self) -> int:
        return self.plane.node_at(self.reached) if self.is_bootstrap else self.port.node_id

    def send_request(self, key: int, version: int, body: bytes) -> Promise[memoryview]:
        if self.closed or self.upstream.refuses:
            return injected_requests.failed()
        if self._injected is None:
            self._injected = InjectedRequests(self)
        promise = self._injected.send_request(key, version, body, self._local.client_id if self._local else None)
        if self.plane.tracing is not None:
            self.plane.tracing.sent(self, key, version, promise)
        self.requests.flows = False
        self._injected.send()
        self.watch()
        return promise

    def on_close(self, callback: Callable[[], None]) -> None:
        if self.closed:
            callback()
        else:
            self._on_close = [*(self._on_close or ()), callback]

    def not_on_close(self, callback: Callable[[], None]) -> None:
        self._on_close = [each for each in self._on_close or () if each is not callback]

    # bytes

    def to_client(self, data: Data | Pieces) -> None:
        try:
            self.client.write(data)
        except OSError as error:
            self.client_left(error)

    def flush_client(self) -> None:
        try:
            self.client.flush()
        except OSError as error:
            self.client_left(error)
            return
        self.held.update()
        self.update()

    @property
    def unsent(self) -> int:
        return self.client.unsent + self.upstream.unsent

    @property
    def holds(self) -> int:
        """Bytes kept of requests and responses. Unsent ones count beyond a receive buffer."""
        held = self.requests.held + self.responses.held + (self._local.held if self._local is not None else 0)
        counts = self.state.now is not RESPONDING and (self.client.has_unsent or self.upstream.has_unsent)
        return held + max(self.unsent - len(self.plane.reactor.buffer), 0) if counts else held

    @property
    def unfinished(self) -> int:
        gathering = self.requests.gathering
        return 0 if gathering is None else gathering.received

    # requests served here, and our own

    def serve(self, request: request_dispatch.GatheredRequest, frame: memoryview) -> None:
        """Mute the client until this request is served."""
        if self._local is None:
            self._local = LocalRequests(self)
        self._local.mute(request, frame)

    def response(self, data: ResponseFrame) -> None:
        """Send the response to the local request. The client is unmuted once the kernel has it."""
        self.plane.local_responses += 1
        self.responses.bytes += len(data)
        self.to_client(data)
        self.update()

    @property
    def in_flight(self) -> int:
        return self._client_pending + self.state.now.is_muted

    def responded(self, promise: Promise[memoryview], body: memoryview) -> None:
        if self._local is not None:
            self._local.attribute_iteration()
        promise.set(body)

    def own_response_begins(self) -> None:
        """Note that the response to a request of the proxy has left the pending queue."""
        if self._injected is not None:
            self._injected.in_flight -= 1

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.plane.reactor.call_on_behalf_of(self, callback)

    def serving(self) -> tuple[int, float] | None:
        """Return API key and age in seconds of the request that mutes the client. None if there is none."""
        return None if self._local is None else self._local.current()

    def describe(self) -> dict[str, object]:
        return {"connection": self.id, "client": self.client_host, "node_id": self.node_id}

    def guarded(self, callback: Callable[[], object]) -> None:
        """Call now. An exception ends this connection only."""
        on_behalf_of(self, callback)

    def handler_failed(self, error: Exception) -> None:
        if isinstance(error, UpstreamLost):
            self.end("connection-closed", reason="upstream lost while serving")
        elif isinstance(error, RemoteProtocolError):
            self.failed(error)
        else:
            self.end("handler-failed", reason=repr(error), error=error)

    # the client's description

    @property
    def passing(self) -> Passing:
        """Requests that can be forwarded without being gathered."""
        passing = self.plane.passing
        return passing.first if self.software is None else passing.described

    def note_software(self, software: ClientSoftware | None) -> None:
        """Keep what the client has said about itself, and do not read that again. None: nothing was said."""
        self.software = software
        if not self.requests.raw:
            self.requests.go_by(self.passing)

    # SASL

    def sasl_handshake_sent(self, version: int) -> None:
        self.sasl.handshake_sent(version)
        rights.forget(self)

    def sasl_handshake_responded(self, version: int, error_code: int) -> None:
        self.sasl.handshake_responded(error_code)
        if version == 0:
            self.state.move(PASSING)
            if not error_code:
                self.requests.raw = True
                self.requests.go_by(NOTHING_PASSES)
            self.requests.resume_soon()

    def may_send_request(self, now: float) -> bool:
        is_open = self.upstream.is_open and self.state.now not in _SILENT
        return is_open and self.requests.at_boundary and self.sasl.may_send_request(now)

    # what is waited for

    @property
    def reads_client(self) -> bool:
        requests = self.requests
        if not requests.walks_on or self.upstream.refuses or self.upstream.has_unsent:
            return False
        return not (requests.is_full or (self._ends_requests and requests.at_boundary))

    @property
    def reads_broker(self) -> bool:
        return not (self.client.has_unsent or self.responses.is_paused)

    @property
    def _client_pending(self) -> int:
        return len(self.pending) - (self._injected.in_flight if self._injected is not None else 0)

    @property
    def _all_responded(self) -> bool:
        """True if all responses are sent. Requests with acks=0 only have to be forwarded."""
        broker_owes = self._client_pending or self.responses.owes_client or self.upstream.has_unsent
        return not (broker_owes or self.client.has_unsent)

    @property
    def _is_between_requests(self) -> bool:
        return self.requests.at_boundary and not self.state.now.is_muted and self._all_responded

    def update(self, *, may_move: bool = True) -> None:
        """Continue after anything off the fast path. `may_move`: see `drain`."""
        if not self.state.now.uses_sockets:
            return
        if self._injected is not None and self._injected.are_held:
            self._injected.send()
        if self._local is not None:
            self._serve_local(self._local)
        if self.closed:
            return
        if self.responses.is_paused and not self.client.has_unsent:
            self.responses.resume_soon()
        if self._ends_requests and self._is_between_requests and self._leave_or_stay(may_move=may_move):
            return
        self.watch()

    def _leave_or_stay(self, *, may_move: bool) -> bool:
        """Move between two requests, or close if this is a drain. Return False if the connection stays."""
        send_away, self._send_away = self._send_away, None
        reason, self._drain_reason = self._drain_reason, ""  # it may move
        self._ends_requests = False
        if reason:
            if not (may_move and self.plane.moves_away(self)):
                self._leave_client()
                self.end("connection-closed", reason=reason)
            return True
        if send_away is not None and send_away(self):
            return True
        self.requests.resume_soon()
        return False

    def _serve_local(self, local: LocalRequests) -> None:
        if self.state.now is MUTED and self._all_responded:
            self.sasl.ordinary_request()  # all requests before it have their responses by now
            if self.sasl.may_send_request(self.plane.reactor.now()):
                local.start()
            else:
                self.end("request-refused", reason=NOT_AUTHENTICATED)
        elif self.state.now is RESPONDING and not self.client.has_unsent:
            local.written()

    def watch(self) -> None:
        """Set the awaited events of both sockets, and whether the fast path may be used."""
        state = self.state.now
        if not state.uses_sockets:
            return
        client, broker, requests, responses = self.client, self.upstream.socket, self.requests, self.responses
        stalls, reads = client.has_unsent, self.reads_client
        client.want((READ if reads else PEER_LEFT if state.is_muted else 0) | (WRITE if stalls else 0))
        if broker is None or not broker.is_open:
            return
        broker.want((READ if self.reads_broker else 0) | (WRITE if broker.has_unsent else 0))
        if state.is_muted:
            requests.flows = responses.flows = False
            return
        watched = self._ends_requests or (self._injected is not None and self._injected.are_held)
        requests.flows = reads and not watched and requests.is_straight
        straight = not (stalls or watched or requests.is_full or state is HANDSHAKING)
        responses.flows = straight and responses.is_straight

    # moves between processes (fleet/README.md rules 22 to 25)

    @property
    def is_moving(self) -> bool:
        """True while another process has the sockets too. This one does not use them."""
        return self.state.now is MOVING

    @property
    def is_needed(self) -> bool:
        """True if something in this process ends with the connection, as a share session does, or if it drains."""
        return bool(self._on_close or self._drain_reason)

    @property
    def is_independent(self) -> bool:
        """True if nothing in this process but the request being served needs the connection."""
        sends = self._injected is not None and self._injected.are_held
        responds = self.pending or self.responses.is_busy
        return not (self.is_needed or sends or responds) and self._all_responded

    # the end

    def client_left(self, error: OSError | None) -> None:
        """End the client's half. Its bytes are still sent to the broker, whose half then ends too."""
        self.end("connection-closed", reason="client reset" if error is not None else "client left")

    def broker_left(self, error: OSError | None) -> None:
        """End the broker's half. Received bytes are still forwarded before the client is disconnected."""
        if self.closed:
            return
        self._leave_client()
        self.end("connection-closed", reason="upstream closed" if error is None else f"upstream: {error}")

    def _leave_client(self) -> None:
        """Detach the client's socket, which is closed after the remaining bytes are sent."""
        unsent = self._local.take_unsent() if self._local is not None else 0
        client, self.client = self.client, PeerSocket()
        self.plane.linger(client, unsent)

    def failed(self, error: Exception) -> None:
        if isinstance(error, RequestRefused):
            self.end("request-refused", reason=str(error))
        elif (event := event_of(error)) != FAILED:
            self.end(event, reason=str(error))
        elif self.closed:
            self.plane.notes("callback-failed", connection=self.id, reason=repr(error), error=error)
        else:
            self.end(FAILED, reason=repr(error), error=error)

    def end(self, event: str, /, **context: Any) -> None:
        """Close both halves and notify all waiters. Logs `event` and `context`."""
        if self.closed:
            return
        self.state.move(CLOSED)
        self.closed = True
        self.requests.flows = self.responses.flows = False
        if self._local is not None:
            self._local.cancel()
            self.plane.budget.sent(self._local.take_unsent())
        self.held.update()
        self.client.close()
        self.upstream.end()
        self._notify()
        self.requests.drop()
        self.responses.drop()
        self.slot_values = {}
        self.plane.forget(self, event, context)

    def release(self) -> None:
        """Drop the parts, so that no reference cycle remains."""
        del self.requests, self.responses, self.upstream, self.held
        self._local = self._injected = None

    def _notify(self) -> None:
        gathering = self.responses.gathering
        subject = None if gathering is None else gathering.subject
        promises = self._injected.lost(subject) if self._injected is not None else []
        awaited = [expected for _, expected in self.pending if isinstance(expected, ExpectedResponse)]
        if isinstance(subject, ExpectedResponse):
            awaited.append(subject)
        self.pending.clear()
        for expected in awaited:
            self.guarded(expected.lost)
        for promise in promises:
            self.guarded(partial(promise.fail, injected_requests.lost()))
        callbacks, self._on_close = self._on_close, None
        for callback in callbacks or ():
            self.guarded(callback)

    # once a second, and at the end of the process

    def sweep(self, now: float) -> None:
        """Check what no event reports: silence, a client that does not read, an upstream close to its idle limit."""
        self.requests.quiet_s += 1
        self.responses.sweep()
        overdue = self.timeouts.overdue(self, now)
        if overdue is not None:
            self.end(overdue[0], reason=overdue[1])
        elif self.timeouts.is_old(now) and not self.is_needed:
            self.drain("limits.connection_age_s")
        elif self._injected is not None:
            self._injected.keep_alive(now)

    def drain(self, reason: str = "drained", *, may_move: bool = True) -> None:
        """Read no further request. Once all responses are sent, let another process continue, or close."""
        self._drain_reason = reason
        self._ends_requests = True
        self.update(may_move=may_move)

    def give_way(self, send: Callable[[ForwardedConnection], bool]) -> None:
        """Read no further request. Once all responses are sent, let another process continue.

        `send` sends the connection there. It returns False if the connection stays here, and is served as before.
        """
        self._send_away = send
        self._ends_requests = True
        self.update()
