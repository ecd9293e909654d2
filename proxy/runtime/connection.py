"""One client connection and the upstream connection that belongs to it alone.

Theory of operation. Bytes of the client go to the broker as they come, and the broker's to the client; `link` walks the
frame boundaries over the shared receive buffer and remembers what the next answer is. The two `_ready` methods are the
fast path: one read, one walk, one write, for any number of whole frames. Whatever else there is (a frame that is
gathered, a peer that does not take its bytes, a local request, SASL, the end) clears `_flows_up` or `_flows_down`, and
the slow path deals with it until `update` finds that nothing is in the way again.

Back-pressure: what a peer does not take waits in its `Side`, and its source is not read until it is gone. So a
connection holds at most one receive buffer per direction, one gathered frame per direction and one local answer.

Nothing that runs inside a walk may use the receive buffer: handlers start behind a walk, the proxy's own answers are
delivered and kept bytes are looked at by `call_soon`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from proxy.apis.promise import Promise
from proxy.errors import AnswerUnusable, RemoteProtocolError, UpstreamLost
from proxy.link.downstream import NOTHING_PASSES, Downstream, Pending
from proxy.link.framing import Gathering
from proxy.link.sasl import Sasl
from proxy.link.upstream import Upstream
from proxy.runtime import answers, faults, requests
from proxy.runtime.answers import OwnAnswer
from proxy.runtime.dialling import Dialled
from proxy.runtime.polling import ERROR, HANGUP, PEER_LEFT, READ, WRITE
from proxy.runtime.serving import Serving, Stage
from proxy.runtime.side import Side
from proxy.runtime.transports import Data, Transport
from proxy.wire.headers import RequestHeader, encode_request_header

if TYPE_CHECKING:
    from proxy.runtime.plane import Plane, Port

KEEP_ALIVE_S = 180.0
"""Least time between two requests of the proxy's own that only keep the upstream connection alive (decision 11)."""

CORRELATION_IDS = 1 << 31


class Connection:
    """See ports.Connection."""

    __slots__ = (
        "_answer",
        "_broker_recv",
        "_broker_send",
        "_buffer",
        "_cancel_dial",
        "_client_recv",
        "_client_send",
        "_draining",
        "_flows_down",
        "_flows_up",
        "_handshaking",
        "_held",
        "_in_flight_max",
        "_kept",
        "_kept_answer",
        "_memory",
        "_on_close",
        "_own",
        "_own_asked_at",
        "_own_id",
        "_resuming",
        "_served",
        "_serving",
        "_stalled",
        "broker",
        "broker_takes",
        "bytes_down",
        "bytes_up",
        "client",
        "client_host",
        "closed",
        "context",
        "down",
        "id",
        "pending",
        "plane",
        "port",
        "quiet_s",
        "request",
        "sasl",
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
        self.broker_takes = True
        """False: sending to the broker failed; what it sent before is still read."""
        self.pending: Pending = deque()
        self.down = Downstream(self.pending, plane.passing, plane.limits.frame_bytes)
        self.up = Upstream(self.pending, plane.limits.frame_bytes)
        self.sasl = Sasl()
        self.request: Gathering | None = None
        """The request that is being gathered."""
        self._answer: Gathering | None = None
        self._kept = b""
        self._kept_answer = b""
        self._serving: Serving | None = None
        self._memory: dict[str, Any] | None = None
        self._on_close: list[Callable[[], None]] | None = None
        self._held: list[tuple[int, OwnAnswer, bytes]] | None = None
        self._own = 0
        self._own_id = 0
        self._own_asked_at = 0.0
        self._served = False
        self._handshaking = False
        self._resuming = False
        self._draining = False
        self._cancel_dial: Callable[[], None] | None = None
        self._in_flight_max = plane.limits.in_flight_requests
        self.quiet_s = 0
        """Sweeps (seconds) since the client's last byte."""
        self._stalled = (0, 0)
        self.bytes_up = 0
        self.bytes_down = 0
        self.closed = False
        self._flows_up = False
        self._flows_down = False
        self._buffer = plane.reactor.buffer
        self._client_recv = transport.recv_into
        self._client_send = transport.send
        self._broker_recv = transport.recv_into  # replaced before it is used
        self._broker_send = transport.send
        transport.attach(self.client_ready, READ)

    # ports.Connection

    @property
    def node_id(self) -> int:
        """See ports.Connection."""
        return self.port.node_id

    @property
    def memory(self) -> dict[str, Any]:
        """See ports.Connection."""
        if self._memory is None:
            self._memory = {}
        return self._memory

    def ask(self, key: int, version: int, body: bytes) -> Promise[memoryview]:
        """See ports.Connection."""
        expected = OwnAnswer(key, version)
        if self.closed or not self.broker_takes:
            expected.promise.fail(UpstreamLost("the connection has ended"))
            return expected.promise
        self._own_id = (self._own_id + 1) % CORRELATION_IDS
        client_id = self._serving.client_id if self._serving is not None else None
        head = encode_request_header(RequestHeader(key, version, self._own_id, client_id))
        if self._held is None:
            self._held = []
        size = len(head) + len(body)
        self._held.append((self._own_id, expected, size.to_bytes(4, "big") + head + body))
        self._own_asked_at = self.plane.reactor.now()
        self._flows_up = False
        self._send_held()
        self.update()
        return expected.promise

    def on_close(self, callback: Callable[[], None]) -> None:
        """See ports.Connection."""
        if self.closed:
            callback()
            return
        if self._on_close is None:
            self._on_close = []
        self._on_close.append(callback)

    # the fast path

    def client_ready(self, mask: int) -> None:
        """The client's socket is ready."""
        if mask != READ or not self._flows_up:
            self._client_event(mask)
            return
        buffer = self._buffer
        try:
            count = self._client_recv(buffer)
        except BlockingIOError:
            return
        except OSError as error:
            self.client_left(error)
            return
        if not count:
            self.client_left(None)
            return
        self.quiet_s = 0
        upto = self.down.receive(buffer, 0, count)
        if upto == count:
            self.bytes_up += count
            try:
                sent = self._broker_send(buffer[:count])
            except BlockingIOError:
                sent = 0
            except OSError:
                self._broker_refuses()
                return
            if sent != count:
                self._keep_request(buffer[sent:count])
            elif len(self.pending) > self._in_flight_max:
                self.update()
            return
        self._walk_requests(0, upto, count)

    def broker_ready(self, mask: int) -> None:
        """The broker's socket is ready."""
        if mask != READ or not self._flows_down:
            self._broker_event(mask)
            return
        buffer = self._buffer
        try:
            count = self._broker_recv(buffer)
        except BlockingIOError:
            return
        except OSError as error:
            self.broker_left(error)
            return
        if not count:
            self.broker_left(None)
            return
        upto = self.up.receive(buffer, 0, count)
        if upto == count:
            self.bytes_down += count
            try:
                sent = self._client_send(buffer[:count])
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self.client_left(error)
                return
            if sent != count:
                self._keep_answer(buffer[sent:count])
            return
        self._walk_answers(0, upto, count)

    def _keep_request(self, rest: memoryview) -> None:
        """The broker did not take all at once."""
        self.bytes_up -= len(rest)
        self.to_broker(rest)
        self.update()

    def _keep_answer(self, rest: memoryview) -> None:
        """The client did not take all at once."""
        self.bytes_down -= len(rest)
        self.to_client(rest)
        self.update()

    # requests

    def _client_event(self, mask: int) -> None:
        if mask & WRITE:
            try:
                self.client.flush()
            except OSError as error:
                self.client_left(error)
                return
            self._after_flush()
            self.update()
        if self.closed:
            return
        if mask & READ and self._reads_client:
            self._read_client()
        elif mask & (PEER_LEFT | HANGUP | ERROR):
            self.client_left(None)

    def _read_client(self) -> None:
        buffer, kept = self._buffer, self._kept
        have = len(kept)
        buffer[:have] = kept
        try:
            count = self._client_recv(buffer[have:])
        except BlockingIOError:
            return
        except OSError as error:
            self.client_left(error)
            return
        if not count:
            self.client_left(None)
            return
        self.quiet_s = 0
        self._kept = b""
        self._walk_requests(0, 0, have + count)

    def _walk_requests(self, start: int, at: int, end: int) -> None:
        """Walk buffer[at:end]; what stands from `start` to `at` passes already."""
        buffer = self._buffer
        if at > start:
            self.to_broker(buffer[start:at])
        walked: int | None = at
        while walked is not None and at < end and self._walks_on:
            if self.request is not None:
                walked = self._gather_request(at, end)
            elif (upto := self.down.receive(buffer, at, end)) > at:
                self.to_broker(buffer[at:upto])
                walked = upto
            else:
                walked = requests.treat(self, buffer, at, end)
                if self.request is not None and self.request.is_whole:
                    self._request_gathered()
            at = at if walked is None else walked
        if at < end and not self.closed:
            self._kept = bytes(buffer[at:end])
        self.update()

    @property
    def _walks_on(self) -> bool:
        """Whether the next request may be looked at."""
        return not (self.closed or self._handshaking or self.is_muted or self._resuming)

    def _gather_request(self, at: int, end: int) -> int:
        assert self.request is not None  # noqa: S101  # the caller has looked
        at = self.request.add(self._buffer, at, end)
        if self.request.is_whole:
            self._request_gathered()
        return at

    def _request_gathered(self) -> None:
        gathering, self.request = self.request, None
        assert gathering is not None  # noqa: S101  # the caller has looked
        assert isinstance(gathering.subject, requests.Asked)  # noqa: S101  # nothing else is gathered
        requests.gathered(self, gathering.subject, gathering.frame)

    def to_broker(self, data: Data) -> None:
        """Pass on, or keep until there is a connection that takes it; dials at the first bytes."""
        self.bytes_up += len(data)
        if self.broker is None:
            self._dial()
        if not self.broker_takes or self.broker is None:
            return
        try:
            self.broker.write(data)
        except OSError:
            self._broker_refuses()

    # answers

    def _broker_event(self, mask: int) -> None:
        assert self.broker is not None  # noqa: S101  # it was attached
        if mask & WRITE:
            try:
                self.broker.flush()
            except OSError:
                self._broker_refuses()
                return
            self.update()
        if self.closed:
            return
        if mask & (READ | HANGUP | ERROR) and not self.client.has_unsent:
            self._read_broker()

    def _read_broker(self) -> None:
        buffer, kept = self._buffer, self._kept_answer
        have = len(kept)
        buffer[:have] = kept
        try:
            count = self._broker_recv(buffer[have:])
        except BlockingIOError:
            return
        except OSError as error:
            self.broker_left(error)
            return
        if not count:
            self.broker_left(None)
            return
        self._kept_answer = b""
        self._walk_answers(0, 0, have + count)

    def _walk_answers(self, start: int, at: int, end: int) -> None:
        """Walk buffer[at:end]; what stands from `start` to `at` passes already. One write for all of it."""
        buffer = self._buffer
        pieces: list[Data] = [buffer[start:at]] if at > start else []
        try:
            at = self._collect_answers(pieces, at, end)
        except (RemoteProtocolError, AnswerUnusable) as error:
            self._pass_answers(pieces)
            self.end("upstream-protocol-error", reason=str(error))
            return
        if at < end and not self.closed:
            self._kept_answer = bytes(buffer[at:end])
        self._pass_answers(pieces)
        self.update()

    def _collect_answers(self, pieces: list[Data], at: int, end: int) -> int:
        buffer = self._buffer
        while at < end and not self.closed:
            if self._answer is not None:
                at = self._gather_answer(self._answer, pieces, at, end)
                continue
            upto = self.up.receive(buffer, at, end)
            if upto > at:
                pieces.append(buffer[at:upto])
                at = upto
                continue
            due = self.up.peek(buffer, at, end)
            if due is None:
                break
            if due.expected.rewrite is False:  # a raw SASL token
                upto = self.up.admit(due.size, at, end)
                pieces.append(buffer[at:upto])
                at = upto
            elif end - at >= due.size + 4:
                self.pending.popleft()
                self._deliver(due.expected, buffer[at : at + due.size + 4], pieces)
                at += due.size + 4
            else:
                self._answer = self._start_answer(due.size, due.expected)
        return at

    def _start_answer(self, size: int, expected: object) -> Gathering:
        limit = self.plane.limits.collected_bytes
        if size > limit:
            raise RemoteProtocolError(f"an answer of {size} bytes is larger than limits.collected_bytes ({limit})")
        self.pending.popleft()
        return Gathering(size, expected)

    def _gather_answer(self, gathering: Gathering, pieces: list[Data], at: int, end: int) -> int:
        at = gathering.add(self._buffer, at, end)
        if gathering.is_whole:
            self._answer = None
            self._deliver(gathering.subject, gathering.frame, pieces)
        return at

    def _deliver(self, expected: object, frame: memoryview, pieces: list[Data]) -> None:
        piece = answers.deliver(self, expected, frame)
        if piece is not None:
            pieces.append(piece)

    def _pass_answers(self, pieces: list[Data]) -> None:
        if pieces and not self.closed:
            self.to_client(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def to_client(self, data: Data) -> None:
        """Pass on, or keep until the client takes it."""
        self.bytes_down += len(data)
        try:
            self.client.write(data)
        except OSError as error:
            self.client_left(error)

    # requests served here, and our own

    def serve(self, asked: requests.Asked, frame: memoryview) -> None:
        """Mute the client until this request is answered here; it starts in `update`."""
        if self._serving is None:
            self._serving = Serving(self)
        self._served = True
        self._serving.mute(asked, frame)

    def answer(self, data: bytes) -> None:
        """The answer to the local request; the client is unmuted once the kernel has it."""
        self.plane.count_local_answer()
        self.to_client(data)
        if not self.closed:
            self._after_flush()
            self.update()

    @property
    def is_muted(self) -> bool:
        """Whether a local request waits, runs or is being answered."""
        return self._serving is not None and self._serving.stage is not Stage.IDLE

    @property
    def in_flight(self) -> int:
        """Requests of the client that wait for an answer."""
        return len(self.pending) - self._own + self.is_muted

    def own_answered(self) -> None:
        """An answer to a request of ours came."""
        self._own -= 1

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call at the end of this turn, on behalf of this connection."""
        self.plane.reactor.call_soon(self, callback)

    def guarded(self, callback: Callable[[], object]) -> None:
        """Call now; what it raises ends this connection and nothing else."""
        faults.guard(self, callback)

    def resume_soon(self) -> None:
        """Go on behind a request that was served: with what is kept, at the end of this turn."""
        if self._kept:
            self._resuming = True
            self.call_soon(self._resume)

    def _resume(self) -> None:
        if self.closed or not self._resuming:
            return
        self._resuming = False
        kept, self._kept = self._kept, b""
        self._buffer[: len(kept)] = kept
        self._walk_requests(0, 0, len(kept))

    def _send_held(self) -> None:
        """Send our own requests, at a frame boundary."""
        held = self._held
        if not held or self.down.left or self._handshaking:
            return
        self._held = None
        for correlation_id, expected, frame in held:
            self.pending.append((correlation_id, expected))
            self._own += 1
            self.to_broker(frame)

    def _after_flush(self) -> None:
        if self._serving is not None and self._serving.stage is Stage.ANSWERING and not self.client.has_unsent:
            self._serving.written()

    def handler_failed(self, error: Exception) -> None:
        """The handler of the local request raised: this connection ends."""
        if isinstance(error, RemoteProtocolError):
            self.failed(error)
        elif isinstance(error, UpstreamLost):
            self.end("connection-closed", reason="upstream lost while serving")
        else:
            self.end("handler-failed", reason=str(error), error=error)

    # SASL

    def await_handshake(self) -> None:
        """Look at nothing of the client until the broker has answered the handshake (v0: tokens may follow)."""
        self._handshaking = True

    def sasl_handshake_answered(self, version: int, error_code: int) -> None:
        """The broker answered SaslHandshake."""
        self.sasl.handshake_answered(error_code)
        if version == 0:
            self._handshaking = False
            if not error_code:
                self.down.raw = True
                self.down.use(NOTHING_PASSES)
            self.resume_soon()

    def sasl_authenticate_answered(self, error_code: int, session_lifetime_ms: int) -> None:
        """The broker answered SaslAuthenticate."""
        self.sasl.authenticate_answered(error_code, session_lifetime_ms, self.plane.reactor.now())

    # what is waited for

    @property
    def _reads_client(self) -> bool:
        broker = self.broker
        return not (
            self.is_muted
            or self._resuming
            or self._handshaking
            or not self.broker_takes
            or (broker is not None and broker.has_unsent)
            or len(self.pending) > self._in_flight_max
            or (self._draining and self._at_boundary)
        )

    @property
    def _at_boundary(self) -> bool:
        return not (self.down.left or self.request is not None or self._kept)

    def update(self) -> None:
        """After anything unusual: send what was held, start what waited, and wait for what matters now."""
        if self.closed:
            return
        if self._held:
            self._send_held()
        serving = self._serving
        if serving is not None and serving.stage is Stage.WAITING and self._all_answered:
            serving.start()
        if self.closed:
            return
        if self._draining and self._is_idle:
            self.end("connection-closed", reason="drained")
            return
        self._watch()

    @property
    def _all_answered(self) -> bool:
        """Whether every earlier request is answered and the kernel has the answers; acks=0 ones: passed on."""
        broker_owes = len(self.pending) > self._own or (self.broker is not None and self.broker.has_unsent)
        return not (broker_owes or self.client.has_unsent or self._answer_is_clients)

    @property
    def _answer_is_clients(self) -> bool:
        """Whether an answer to the client is only half here."""
        gathering = self._answer
        return self.up.left > 0 or (gathering is not None and not isinstance(gathering.subject, OwnAnswer))

    @property
    def _is_idle(self) -> bool:
        busy = self.in_flight or self.client.has_unsent or self._answer_is_clients
        return self._at_boundary and not busy and not (self.broker is not None and self.broker.has_unsent)

    def _watch(self) -> None:
        client_stalls = self.client.has_unsent
        reads = self._reads_client
        mask = READ if reads else PEER_LEFT if self.is_muted else 0
        assert self.client.transport is not None  # noqa: S101  # a connection begins with one
        self.client.transport.want(mask | WRITE if client_stalls else mask)
        broker = self.broker
        if broker is None or broker.transport is None:
            return
        mask = 0 if client_stalls else READ
        broker.transport.want(mask | WRITE if broker.has_unsent else mask)
        settled = not (self._draining or self._kept or self._held)
        self._flows_up = reads and settled and self.request is None
        watched = self.is_muted or self._draining or self._handshaking or len(self.pending) > self._in_flight_max
        self._flows_down = not (client_stalls or watched or self._kept_answer or self._answer is not None)

    # the upstream connection

    def _dial(self) -> None:
        self.broker = Side()
        self._cancel_dial = self.plane.dial(self.port.targets(), self._dialled)

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
        self._broker_recv = transport.recv_into
        self._broker_send = transport.send
        transport.attach(self.broker_ready, READ)
        self._broker_event(WRITE)
        self.update()

    def _broker_refuses(self) -> None:
        """Sending to the broker failed: what it had sent before is still passed on, then `broker_left` is called."""
        self.broker_takes = False
        if self.broker is not None:
            self.broker.discard()
        self.update()

    # the end

    def client_left(self, error: OSError | None) -> None:
        """The client's half has gone: what it sent goes to the broker, then that ends too."""
        self.end("connection-closed", reason="client reset" if error is not None else "client left")

    def broker_left(self, error: OSError | None) -> None:
        """The broker's half has gone: what was received is passed on, then the client is closed."""
        cause = f"upstream reset ({error.strerror or error})" if error is not None else "upstream closed"
        if self.closed:
            return
        if self.client.has_unsent:
            unsent = self._serving.take_unsent() if self._serving is not None else 0
            client, self.client = self.client, Side()
            self.plane.linger(client, unsent)
        self.end("connection-closed", reason=cause)

    def failed(self, error: Exception) -> None:
        """See faults.Owner."""
        if isinstance(error, requests.Refused):
            self.end("request-refused", reason=str(error))
        elif isinstance(error, RemoteProtocolError):
            self.end("client-protocol-error", reason=str(error))
        elif faults.is_network_trouble(error):
            self.end("connection-closed", reason=str(error))
        else:
            self.end("connection-failed", reason=str(error), error=error)

    def end(self, event: str, /, **context: Any) -> None:
        """Close both halves, tell whoever wants to know. `event` and `context` go to the notes."""
        if self.closed:
            return
        self.closed = True
        self._flows_up = self._flows_down = False
        if self._serving is not None:
            self._serving.cancel()
            self.plane.budget.sent(self._serving.take_unsent())
        self.client.close()
        self._end_broker()
        self._tell()
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
        lost = UpstreamLost("the connection ended before the answer came")
        gathering = self._answer
        unanswered = [expected for _, expected in self.pending]
        unanswered += [expected for _, expected, _ in self._held or ()]
        unanswered += [gathering.subject] if gathering is not None else []  # type: ignore[list-item]
        self.pending.clear()
        for expected in unanswered:
            if isinstance(expected, OwnAnswer):
                self.guarded(partial(expected.promise.fail, lost))
        callbacks, self._on_close = self._on_close, None
        for callback in callbacks or ():
            self.guarded(callback)

    # once a second

    def sweep(self, now: float) -> None:
        """Look for what no event tells: silence, a client that takes nothing, an upstream about to be closed idle."""
        self.quiet_s += 1
        limits = self.plane.limits
        if self._answers_locally and self._stalls(limits.stalled_client_s):
            self.end("client-stalled", reason=f"took no byte for {limits.stalled_client_s:g} s")
        elif self.quiet_s > limits.idle_client_s and not self.in_flight:
            self.end("connection-closed", reason="client idle")
        elif self._served and now - self._own_asked_at >= KEEP_ALIVE_S:
            self._keep_alive(now)

    @property
    def _answers_locally(self) -> bool:
        return self._serving is not None and self._serving.stage is Stage.ANSWERING

    def _stalls(self, limit_s: float) -> bool:
        progress, sweeps = self._stalled
        self._stalled = (self.client.progress, sweeps + 1 if progress == self.client.progress else 0)
        return self._stalled[1] > limit_s

    def _keep_alive(self, now: float) -> None:
        broker = self.broker
        connected = broker is not None and broker.is_open and self.broker_takes
        if connected and not self._handshaking and not self.down.raw and self.sasl.may_ask(now):
            question = self.plane.keep_alive(self)
            if question is not None:
                self.ask(*question)

    def drain(self) -> None:
        """Look at no new request; end as soon as nothing is in flight."""
        self._draining = True
        self._flows_up = self._flows_down = False
        self.update()

    @property
    def unsent(self) -> int:
        """Bytes that one of the peers has not taken yet."""
        return self.client.unsent + (self.broker.unsent if self.broker is not None else 0)
