"""One direction of a connection: the broker's responses to the client."""

from __future__ import annotations

from errno import EIO
from os import strerror
from typing import Any, Protocol

from kafka_share_proxy.forwarding.dispatch import response_dispatch
from kafka_share_proxy.forwarding.served.interfaces import ExpectedResponse
from kafka_share_proxy.forwarding.walk.broker_responses import TOKEN, BrokerResponses, Due
from kafka_share_proxy.forwarding.walk.gathering import Gathering
from kafka_share_proxy.forwarding.walk.kept_bytes import NOTHING, READ_AFTER_PAUSE, keep, memory_of, must_read_little
from kafka_share_proxy.forwarding.walk.walking import Pending
from kafka_share_proxy.loop.polling import READ, WRITE
from kafka_share_proxy.loop.transports import Data, Transport
from kafka_share_proxy.wire.codec.frame_sizes import RESPONSE_HEAD
from kafka_share_proxy.wire.errors import RemoteProtocolError, RequestRefused, UnusableResponse

READ_AT_ONCE = 1 << 20
"""Maximum bytes of a gathered response to await before one read, because each wake-up costs more than the bytes. A
response of 4 MiB is read in 4 or 5 pieces instead of 18.
"""

_head = RESPONSE_HEAD.unpack_from


class ResponseReceiver(response_dispatch.ResponseSink, Protocol):
    """Connection that forwards the responses."""

    @property
    def reads_broker(self) -> bool:
        """True if the broker's socket may be read now."""

    def to_client(self, data: Data) -> None:
        """Send bytes to the client, or keep them until its socket accepts them."""

    def flush_broker(self) -> None:
        """Send kept bytes, because the broker's socket is writable again."""

    def own_response_begins(self) -> None:
        """Note that the response to a request of the proxy has left the queue of pending responses."""

    def client_left(self, error: OSError | None) -> None:
        """Handle the end of the client's half of the connection."""

    def broker_left(self, error: OSError | None) -> None:
        """Handle the end of the broker's half of the connection."""

    def end(self, event: str, /, **context: Any) -> None:
        """Close the client's connection and the broker's."""


class BrokerToClient(BrokerResponses):
    """Reader of the broker's responses, which go to the client. See `connection` for how the parts interact."""

    __slots__ = (
        "_buffer",
        "_connection",
        "_is_planned",
        "_kept",
        "_recv",
        "_send",
        "_wait_for",
        "_waits_for",
        "gathering",
        "is_paused",
        "reads_little",
    )

    def __init__(self, connection: ResponseReceiver, transport: Transport, pending: Pending) -> None:
        super().__init__(pending, connection.plane.limits.frame_bytes)
        self._connection = connection
        self._buffer = connection.plane.reactor.buffer
        self._send = transport.send
        self._recv = transport.recv_into  # the broker's transport once it is connected; until then nothing is read
        self._wait_for = transport.wait_for
        self._waits_for = 1
        self._kept = NOTHING
        self.reads_little = False
        """True if a walk left much of the last received bytes unprocessed. Later reads are then smaller."""
        self.is_paused = False
        """True while received bytes wait for a later loop iteration. The broker is not read meanwhile."""
        self._is_planned = False
        """True while `call_in_turn` holds the call that continues."""
        self.gathering: Gathering | None = None
        """Response that is being gathered."""

    def ready(self, mask: int) -> None:
        """Handle events of the broker's socket: the fast path for plain reads, `_event` for everything else."""
        if mask != READ or not self.flows:
            self._event(mask)
            return
        buffer = self._buffer
        recv = self._recv  # a local name, because calling a slot is slow (CPython 3.11 to 3.13 do not cache it)
        try:
            count = recv(buffer)
        except BlockingIOError:
            return
        except OSError as error:
            self._connection.broker_left(error)
            return
        if not count:
            self._connection.broker_left(None)
            return
        upto = self.receive(buffer, 0, count)
        if upto != count:
            self.walked(upto, count)
            return
        self.bytes += count
        send = self._send
        try:
            sent = send(buffer[:count])
        except BlockingIOError:
            sent = 0
        except OSError as error:
            sent = -(error.errno or EIO)
        if sent != count:
            self.sent(sent, count)

    def ended(self, code: int, _: int) -> None:
        self._connection.broker_left(OSError(code, strerror(code)) if code else None)

    def walked(self, upto: int, count: int) -> None:
        if upto or not self._rewrites_one(count):
            self._walk(self._buffer, upto, count)

    def sent(self, sent: int, count: int) -> None:
        if sent < 0:
            self._connection.client_left(OSError(-sent, strerror(-sent)))
            return
        self._connection.to_client(self._buffer[sent:count])
        self._connection.update()

    def describe(self) -> dict[str, object]:
        return self._connection.describe()

    def failed(self, error: Exception) -> None:
        """See faults.FaultOwner. Errors of the TLS handshake arrive here too."""
        if isinstance(error, RequestRefused):
            self._connection.failed(error)
        elif isinstance(error, RemoteProtocolError | UnusableResponse):
            self._connection.end("upstream-protocol-error", reason=str(error))
        elif isinstance(error, OSError):
            self._connection.end("upstream-unreachable", reason=str(error))
        else:
            self._connection.failed(error)

    def connected(self, transport: Transport) -> None:
        """Use the transport of the established upstream connection."""
        self._recv = transport.recv_into
        self._wait_for = transport.wait_for

    @property
    def is_straight(self) -> bool:
        """True if no part of a response is kept here. A whole receive buffer may then be read."""
        return not (self._kept or self.gathering is not None or self.reads_little)

    @property
    def held(self) -> int:
        """Bytes from the broker that are kept here, or have memory reserved."""
        return memory_of(self._kept) + (0 if self.gathering is None else self.gathering.whole)

    def drop(self) -> None:
        """Release kept bytes. After its end, the connection may wait a long time for the garbage collector."""
        self.gathering, self._kept = None, NOTHING

    @property
    def owes_client(self) -> bool:
        """True if a response to the client has arrived only in part."""
        gathering = self.gathering
        return self.left > 0 or (
            gathering is not None and not isinstance(gathering.subject, response_dispatch.OwnResponse)
        )

    def _event(self, mask: int) -> None:
        connection = self._connection
        if mask & WRITE:
            connection.flush_broker()
        if not connection.closed and mask & ~WRITE and connection.reads_broker:
            self._read()

    def _read(self) -> None:
        """Read into the gathered response, or after the kept bytes, which are the beginning of a head."""
        gathering, kept = self.gathering, self._kept
        room = None if gathering is None else gathering.room
        self._buffer[: len(kept)] = kept
        if room is None:
            most = len(kept) + READ_AFTER_PAUSE if self.reads_little else None
            into = self._buffer[len(kept) : most]
        else:
            into = room
        try:
            count = self._recv(into)
        except BlockingIOError:
            return
        except OSError as error:
            self._connection.broker_left(error)
            return
        if not count:
            self._connection.broker_left(None)
            return
        self._kept = NOTHING
        if gathering is None or room is None:
            self._walk(self._buffer, 0, len(kept) + count)
            return
        gathering.filled(count)
        self._await(gathering.left)
        if gathering.is_whole:
            self._walk(self._buffer, 0, 0)

    def resume_soon(self) -> None:
        """Continue after a pause, in a later loop iteration. Called once the client's socket has accepted all bytes."""
        if not self._is_planned:
            self._is_planned = True
            self._connection.plane.reactor.call_in_turn(self, self._resume)

    def _resume(self) -> None:
        self._is_planned = False
        if self._connection.closed:
            return
        kept, self._kept, self.is_paused = self._kept, NOTHING, False
        self._walk(kept, 0, len(kept), self._connection.plane.reactor.turn_ends())

    def sweep(self) -> None:
        """Wake up for any bytes of a gathered response once a second, however many the kernel should wait for."""
        self._await(0)

    def _await(self, left: int) -> None:
        """Wait until many bytes of a gathered response have arrived, or any bytes if only a few are missing."""
        count = READ_AT_ONCE if left >= READ_AT_ONCE else left if left >= len(self._buffer) else 1
        if count != self._waits_for:
            self._wait_for(count)
            self._waits_for = count

    def _rewrites_one(self, count: int) -> bool:
        """Handle one whole response, alone in the buffer, rewritten or awaited: the commonest special case."""
        pending, buffer = self.pending, self._buffer
        if not pending or count < RESPONSE_HEAD.size:
            return False
        size, correlation_id = _head(buffer, 0)
        asked, expected = pending[0]
        if isinstance(expected, ExpectedResponse) and correlation_id == asked and size + 4 == count:
            pending.popleft()
            expected.came(buffer[:count])
            return True
        if not response_dispatch.is_treatment(expected) or correlation_id != asked or size + 4 != count:
            return False
        pending.popleft()
        self._connection.plane.reactor.turns.doing = self._connection, expected
        data = expected.rewrite(buffer[4:count], self._connection.context) or buffer[:count]
        self.bytes += len(data)
        send = self._send
        try:
            sent = send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._connection.client_left(error)
            return True
        if sent != len(data):
            self._connection.to_client(memoryview(data)[sent:])
            self._connection.update()
        return True

    def _walk(self, buffer: memoryview, at: int, end: int, until: float | None = None) -> None:
        """Walk buffer[at:end] until the time is over, and send everything with one write.

        Bytes before `at` are forwarded. If `until` is None, this connection's share of the loop iteration begins now.
        """
        pieces: list[Data] = [buffer[:at]] if at else []
        trouble = None
        try:
            at = self._collect(buffer, pieces, at, end, until)
        except (RemoteProtocolError, UnusableResponse) as error:
            trouble = error
        if pieces and not self._connection.closed:
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self.bytes += len(data)
            self._connection.to_client(data)
        if trouble is not None:
            self.failed(trouble)
            return
        if not self._connection.closed:
            self._kept = keep(buffer, at, end, self._buffer)
            if buffer is self._buffer:
                self.reads_little = must_read_little(end - at, self.reads_little)
        self._connection.held.update()
        self._connection.update()

    def _collect(self, buffer: memoryview, pieces: list[Data], at: int, end: int, until: float | None) -> int:
        """Append the bytes for the client to `pieces`. Returns where the walk stopped for bytes or for time."""
        reactor = self._connection.plane.reactor
        while at < end or (self.gathering is not None and self.gathering.is_whole):
            upto = self.receive(buffer, at, end) if self.gathering is None else at
            if upto > at:
                pieces.append(buffer[at:upto])
                at = upto
                continue
            if self.gathering is not None:
                at = self._gather(self.gathering, buffer, pieces, at, end)
            else:
                due = self.peek(buffer, at, end)
                if due is None:
                    break
                at = self._take(due, buffer, pieces, at, end)
            if at < end:
                if until is None:
                    until = reactor.share_ends()
                if reactor.now() >= until:
                    self.is_paused = True
                    break
        return at

    def _take(self, due: Due, buffer: memoryview, pieces: list[Data], at: int, end: int) -> int:
        """Handle a response that is not forwarded unchanged."""
        behind = at + due.size + 4
        if due.expected is TOKEN:
            upto = self.admit(due.size, at, end)
            pieces.append(buffer[at:upto])
            return upto
        limit = self._connection.plane.limits.collected_bytes
        if due.size > limit:
            raise RemoteProtocolError(f"an answer of {due.size} bytes is larger than limits.collected_bytes ({limit})")
        self.pending.popleft()
        if isinstance(due.expected, response_dispatch.OwnResponse):
            self._connection.own_response_begins()
        if behind > end:
            self.gathering = Gathering(due.size, due.expected, presized=True)
            self._connection.held.update()
            if self.gathering.room is not None:
                self._await(behind - end)
            return at
        self._deliver(due.expected, buffer[at:behind], pieces)
        return behind

    def _gather(self, gathering: Gathering, buffer: memoryview, pieces: list[Data], at: int, end: int) -> int:
        upto = gathering.add(buffer, at, end)
        if gathering.is_whole:
            self.gathering = None
            self._deliver(gathering.subject, gathering.frame, pieces)
        return upto

    def _deliver(self, expected: object, frame: memoryview, pieces: list[Data]) -> None:
        piece = response_dispatch.deliver(self._connection, expected, frame)
        if piece is not None:
            pieces.append(piece)
