"""One client connection and the upstream connection that belongs to it alone.

Theory of operation. Bytes of the client go up to the broker as they come (`upward`), and the broker's down to the
client (`downward`); `link` walks the frame boundaries over the shared receive buffer and remembers what the next answer
is. The two `ready` methods are the fast path: one read, one walk, one write, for any number of whole frames. Whatever
else there is (a frame that is gathered, a peer that does not take its bytes, a local request, SASL, the end) clears
`flows` of a way, and the slow path deals with it until `update` finds that nothing is in the way again.

Back-pressure: what a peer does not take waits in its `Side`, and its source is not read until it is gone. So a
connection holds at most one receive buffer per direction, one gathered frame per direction and one local answer.

Nothing that runs inside a walk may use the receive buffer: handlers start behind a walk, the proxy's own answers are
delivered and kept bytes are looked at by `call_soon`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from proxy.brokers import rights
from proxy.brokers.connection_slots import SlotValues
from proxy.brokers.dialling import Dialled
from proxy.forwarding import injected_requests, request_dispatch
from proxy.forwarding.broker_to_client import Downward
from proxy.forwarding.client_requests import NOTHING_PASSES
from proxy.forwarding.client_to_broker import Upward
from proxy.forwarding.held_bytes import Holding
from proxy.forwarding.injected_requests import Questions
from proxy.forwarding.local_requests import Serving, Stage
from proxy.forwarding.peer_socket import Side
from proxy.forwarding.sasl import Sasl
from proxy.forwarding.walking import Pending
from proxy.loop import faults
from proxy.loop.polling import PEER_LEFT, READ, WRITE
from proxy.loop.promise import Promise
from proxy.loop.transports import Data, PlainTransport, Transport
from proxy.wire.errors import RemoteProtocolError, RequestRefused, UpstreamLost
from proxy.wire.frames import Answer, Pieces

if TYPE_CHECKING:
    from proxy.forwarding.data_plane import Plane, Port


NOT_AUTHENTICATED = "a request after the lifetime of the client's SASL session, or before the end of its authentication"
"""A broker ends the connection as well: at anything but SaslHandshake (SocketServer.processCompletedReceives)."""


class Connection:
    """See interfaces.Connection."""

    __slots__ = (
        "_cancel_dial",
        "_draining",
        "_on_close",
        "_questions",
        "_serving",
        "_stalled",
        "broker",
        "broker_takes",
        "client",
        "client_host",
        "closed",
        "context",
        "down",
        "holding",
        "id",
        "is_known",
        "is_muted",
        "pending",
        "plane",
        "port",
        "sasl",
        "slot_values",
        "up",
    )

    def __init__(self, plane: Plane, port: Port, transport: Transport, client_host: str) -> None:
        self.plane = plane
        self.port = port
        self.context = port.context
        self.id = plane.next_id()
        self.client_host = client_host
        self.client = Side(transport)
        self.broker: Side | None = None
        """None until the client's first bytes."""
        self.broker_takes = True
        """False: sending to the broker failed; what it sent before is still read."""
        self.pending = Pending()
        self.up = Upward(self, transport, self.pending)
        self.down = Downward(self, transport, self.pending)
        self.sasl = Sasl()
        self.closed = False
        self.is_muted = False
        """Whether a local request waits, runs or is being answered."""
        self.is_known = plane.introduction is None
        """Whether the broker has answered a request that it answers to clients it knows only."""
        self.holding = Holding(self)
        self.slot_values: SlotValues = {}
        """What features remember of this connection."""
        self._serving: Serving | None = None
        self._questions: Questions | None = None
        self._on_close: list[Callable[[], None]] | None = None
        self._draining = False
        self._cancel_dial: Callable[[], None] | None = None
        self._stalled = (0, 0)
        transport.attach(self.up.ready, READ)

    # interfaces.Connection

    @property
    def node_id(self) -> int:
        """See interfaces.Connection."""
        return self.port.node_id

    def ask(self, key: int, version: int, body: bytes) -> Promise[memoryview]:
        """See interfaces.Connection."""
        if self.closed or not self.broker_takes:
            promise: Promise[memoryview] = Promise()
            promise.fail(injected_requests.lost())
            return promise
        if self._questions is None:
            self._questions = Questions(self)
        promise = self._questions.ask(key, version, body, self._serving.client_id if self._serving else None)
        self.up.flows = False
        self._questions.send()
        self._watch()
        return promise

    def on_close(self, callback: Callable[[], None]) -> None:
        """See interfaces.Connection."""
        if self.closed:
            callback()
            return
        if self._on_close is None:
            self._on_close = []
        self._on_close.append(callback)

    # bytes

    def to_broker(self, data: Data) -> None:
        """Pass on, or keep until there is a connection that takes it; dials at the first bytes."""
        if self.broker is None:
            self.broker = Side()
            self._cancel_dial = self.plane.dial(self.port.targets(), self._dialled)
        if not self.broker_takes:
            return
        try:
            self.broker.write(data)
        except OSError:
            self.broker_refuses()

    def to_client(self, data: Data | Pieces) -> None:
        """Pass on, or keep until the client takes it."""
        try:
            self.client.write(data)
        except OSError as error:
            self.client_left(error)

    def flush_client(self) -> None:
        """The client takes more."""
        try:
            self.client.flush()
        except OSError as error:
            self.client_left(error)
            return
        self.holding.update()
        self.update()

    def flush_broker(self) -> None:
        """The broker takes more."""
        if self.broker is None:
            return
        try:
            self.broker.flush()
        except OSError:
            self.broker_refuses()
            return
        self.holding.update()
        self.update()

    @property
    def unsent(self) -> int:
        """Bytes that one of the peers has not taken yet."""
        return self.client.unsent + (self.broker.unsent if self.broker is not None else 0)

    @property
    def holds(self) -> int:
        """Bytes kept of requests and answers; of unsent ones those beyond a receive buffer, and none of our answers."""
        held = self.up.held + self.down.held
        if self._serving is not None:
            held += self._serving.held
        return held if self._answers_locally else held + max(self.unsent - len(self.plane.reactor.buffer), 0)

    # requests served here, and our own

    def serve(self, asked: request_dispatch.Asked, frame: memoryview) -> None:
        """Mute the client until this request is answered here; it starts in `update`."""
        if self._serving is None:
            self._serving = Serving(self)
        self._serving.mute(asked, frame)
        self.holding.update()

    def answer(self, data: Answer) -> None:
        """The answer to the local request; the client is unmuted once the kernel has it."""
        self.plane.count_local_answer()
        self.down.bytes += len(data)
        self.to_client(data)
        self.update()

    @property
    def in_flight(self) -> int:
        """Requests of the client that wait for an answer."""
        return self._client_pending + self.is_muted

    def answered(self, promise: Promise[memoryview], body: memoryview) -> None:
        """The broker answered a request of ours: whoever asked goes on, nearly always the request served here."""
        if self._serving is not None:
            self._serving.goes_on()
        promise.set(body)

    def own_answer_begins(self) -> None:
        """An answer to a request of ours has left the queue of pending ones, whether or not all of it is here."""
        if self._questions is not None:
            self._questions.unanswered -= 1

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call at the end of this turn, on behalf of this connection."""
        self.plane.reactor.call_soon(self, callback)

    def describe(self) -> dict[str, object]:
        """For log lines about what this connection did."""
        return {"connection": self.id, "client": self.client_host, "node_id": self.node_id}

    def guarded(self, callback: Callable[[], object]) -> None:
        """Call now; what it raises ends this connection and nothing else."""
        faults.guard(self, callback)

    def handler_failed(self, error: Exception) -> None:
        """The handler of the local request raised: this connection ends."""
        if isinstance(error, UpstreamLost):
            self.end("connection-closed", reason="upstream lost while serving")
        elif isinstance(error, RemoteProtocolError):
            self.failed(error)
        else:
            self.end("handler-failed", reason=repr(error), error=error)

    # SASL

    def sasl_handshake_sent(self, version: int) -> None:
        """The client begins an exchange: what was said of its rights before counts no more."""
        self.sasl.handshake_sent(version)
        rights.forget(self)

    def sasl_handshake_answered(self, version: int, error_code: int) -> None:
        """The broker answered SaslHandshake."""
        self.sasl.handshake_answered(error_code)
        if version == 0:
            self.up.handshaking = False
            if not error_code:
                self.up.raw = True
                self.up.go_by(NOTHING_PASSES)
            self.up.resume_soon()

    def sasl_authenticate_answered(self, error_code: int, session_lifetime_ms: int, sent_at: float) -> None:
        """The broker answered SaslAuthenticate."""
        self.sasl.authenticate_answered(error_code, session_lifetime_ms, sent_at)

    def may_ask(self, now: float) -> bool:
        """Whether a request of ours can be sent now and would be judged."""
        connected = self.broker is not None and self.broker.is_open and self.broker_takes
        return connected and self.up.at_boundary and not self.up.handshaking and self.sasl.may_ask(now)

    # what is waited for

    @property
    def reads_client(self) -> bool:
        """Whether more of the client may be read now."""
        if self.is_muted or not self.broker_takes or self._broker_has_unsent:
            return False
        up = self.up
        return up.walks_on and not (up.is_full or (self._draining and up.at_boundary))

    @property
    def reads_broker(self) -> bool:
        """Whether more of the broker may be read now."""
        return not self.client.has_unsent

    @property
    def _broker_has_unsent(self) -> bool:
        broker = self.broker
        return broker is not None and broker.has_unsent

    @property
    def _client_pending(self) -> int:
        return len(self.pending) - (self._questions.unanswered if self._questions is not None else 0)

    @property
    def _all_answered(self) -> bool:
        """Whether every earlier request is answered and the kernel has the answers; acks=0 ones: passed on."""
        broker_owes = self._client_pending or self.down.owes_client or self._broker_has_unsent
        return not (broker_owes or self.client.has_unsent)

    def update(self) -> None:
        """After anything unusual: send what was held, start what waited, and wait for what matters now."""
        if self.closed:
            return
        if self._questions is not None and self._questions.are_held:
            self._questions.send()
        if self._serving is not None:
            self._serve_on(self._serving)
        if self.closed:
            return
        if self._draining and self.up.at_boundary and not self.is_muted and self._all_answered:
            self._leave_client()
            self.end("connection-closed", reason="drained")
            return
        self._watch()

    def _serve_on(self, serving: Serving) -> None:
        if serving.stage is Stage.WAITING and self._all_answered:
            self.sasl.ordinary_request()  # what was in flight when it came is answered by now
            if self.sasl.may_ask(self.plane.reactor.now()):
                serving.start()
            else:
                self.end("request-refused", reason=NOT_AUTHENTICATED)
        elif serving.stage is Stage.ANSWERING and not self.client.has_unsent:
            serving.written()

    def _watch(self) -> None:
        """Set what both sockets are waited for, and whether bytes may take the fast path."""
        if self.closed:
            return
        client, broker, up, muted = self.client, self.broker, self.up, self.is_muted
        stalls, reads = client.has_unsent, self.reads_client
        client.want((READ if reads else PEER_LEFT if muted else 0) | (WRITE if stalls else 0))
        if broker is None or not broker.is_open:
            return
        broker.want((0 if stalls else READ) | (WRITE if broker.has_unsent else 0))
        watched = self._draining or (self._questions is not None and self._questions.are_held)
        up.flows = reads and not watched and up.is_straight
        straight = not (stalls or muted or watched or up.handshaking or up.is_full)
        self.down.flows = straight and self.down.is_straight

    # the upstream connection

    def _dialled(self, result: Dialled | OSError) -> None:
        """Called from a Trio task: go on in the loop, where what is raised ends this connection only."""
        self._cancel_dial = None
        self.call_soon(partial(self._connected, result))

    def _connected(self, result: Dialled | OSError) -> None:
        if isinstance(result, OSError):
            self.end("upstream-unreachable", reason=str(result))
            return
        broker = self.broker
        if broker is None or (self.closed and not broker.has_unsent):
            result.sock.close()
            return
        transport = self.plane.upstream_transport(result)
        broker.open(transport)
        if self.closed:  # the client sent (acks=0) and left before there was a connection
            self.plane.linger(broker)
            return
        self.up.connected(transport)
        self.down.connected(transport)
        transport.attach(self.down.ready, READ)
        self._let_pass(transport)
        self.flush_broker()

    def _let_pass(self, broker: Transport) -> None:
        """Plain on both sides: what passes as it comes needs no call of ours."""
        client = self.client.transport
        if isinstance(client, PlainTransport) and isinstance(broker, PlainTransport):
            reactor = self.plane.reactor
            reactor.pass_on(client.fd, self.up, broker.fd)
            reactor.pass_on(broker.fd, self.down, client.fd)

    def broker_refuses(self) -> None:
        """Sending to the broker failed: what it had sent before is still passed on, then `broker_left` is called."""
        self.broker_takes = False
        if self.broker is not None:
            self.broker.discard()
        self._watch()

    # the end

    def client_left(self, error: OSError | None) -> None:
        """The client's half has gone: what it sent goes to the broker, then that ends too."""
        self.end("connection-closed", reason="client reset" if error is not None else "client left")

    def broker_left(self, error: OSError | None) -> None:
        """The broker's half has gone: what was received is passed on, then the client is closed."""
        if self.closed:
            return
        self._leave_client()
        self.end("connection-closed", reason="upstream closed" if error is None else f"upstream: {error}")

    def _leave_client(self) -> None:
        """The client gets what it was given before, whatever it has sent since; the rest of the connection ends."""
        unsent = self._serving.take_unsent() if self._serving is not None else 0
        client, self.client = self.client, Side()
        self.plane.linger(client, unsent)

    def failed(self, error: Exception) -> None:
        """See faults.Owner."""
        if isinstance(error, RequestRefused):
            self.end("request-refused", reason=str(error))
        elif isinstance(error, RemoteProtocolError):
            self.end("client-protocol-error", reason=str(error))
        elif faults.is_network_trouble(error):
            self.end("connection-closed", reason=str(error))
        elif self.closed:
            self.plane.notes("callback-failed", connection=self.id, reason=repr(error), error=error)
        else:
            self.end("connection-failed", reason=repr(error), error=error)

    def end(self, event: str, /, **context: Any) -> None:
        """Close both halves, tell whoever wants to know. `event` and `context` go to the notes."""
        if self.closed:
            return
        self.closed = True
        self.up.flows = self.down.flows = False
        if self._serving is not None:
            self._serving.cancel()
            self.plane.budget.sent(self._serving.take_unsent())
        self.holding.update()
        self.client.close()
        self._end_broker()
        self._tell()
        self.up.drop()
        self.down.drop()
        self.slot_values = {}
        self.plane.forget(self, event, context)

    def _end_broker(self) -> None:
        broker = self.broker
        if broker is not None and broker.has_unsent:
            if broker.is_open:
                self.plane.linger(broker)
            return  # or still being dialled: _connected sends it
        if self._cancel_dial is not None:
            self._cancel_dial()
            self._cancel_dial = None
        if broker is not None:
            broker.close()

    def _tell(self) -> None:
        promises = self._questions.lost() if self._questions is not None else []
        self.pending.clear()
        for promise in promises:
            self.guarded(partial(promise.fail, injected_requests.lost()))
        callbacks, self._on_close = self._on_close, None
        for callback in callbacks or ():
            self.guarded(callback)

    # once a second, and at the end of the process

    def sweep(self, now: float) -> None:
        """Look for what no event tells: silence, a client that takes nothing, an upstream about to be closed idle."""
        self.up.quiet_s += 1
        self.down.sweep()
        limits = self.plane.limits
        if self._answers_locally and self._stalls(limits.stalled_client_s):
            self.end("client-stalled", reason=f"took no byte for {limits.stalled_client_s:g} s")
        elif self.up.gathering is not None and now - self.up.gathering_since > limits.gathering_s:
            self.end(
                "request-refused",
                reason=f"a request had not come whole after limits.gathering_s ({limits.gathering_s:g})",
            )
        elif self.up.quiet_s > limits.idle_client_s and not self.in_flight:
            self.end("connection-closed", reason="client idle")
        elif self._questions is not None:
            self._questions.keep_alive(now)

    @property
    def _answers_locally(self) -> bool:
        return self._serving is not None and self._serving.stage is Stage.ANSWERING

    def _stalls(self, limit_s: float) -> bool:
        progress, sweeps = self._stalled
        self._stalled = (self.client.progress, sweeps + 1 if progress == self.client.progress else 0)
        return self._stalled[1] > limit_s

    def drain(self) -> None:
        """Look at no new request; end as soon as nothing is in flight."""
        self._draining = True
        self.update()
