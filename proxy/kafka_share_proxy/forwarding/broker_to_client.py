"""One direction of a connection: the broker's responses to the client."""

from __future__ import annotations

from errno import EIO
from os import strerror
from typing import TYPE_CHECKING

from kafka_share_proxy.forwarding.dispatch import response_dispatch
from kafka_share_proxy.forwarding.served.interfaces import ExpectedResponse
from kafka_share_proxy.forwarding.walk.broker_responses import TOKEN, BrokerResponses, Due
from kafka_share_proxy.forwarding.walk.gathering import Gathering
from kafka_share_proxy.forwarding.walk.kept_bytes import NOTHING, READ_AFTER_PAUSE, keep, memory_of, must_read_little
from kafka_share_proxy.forwarding.walk.walking import Pending
from kafka_share_proxy.loop.interfaces import Data, Transport
from kafka_share_proxy.loop.polling import READ, WRITE
from kafka_share_proxy.wire.codec.frame_sizes import RESPONSE_HEAD, SIZE
from kafka_share_proxy.wire.errors import RemoteProtocolError, RequestRefused, UnusableResponse

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.connection import ForwardedConnection

READ_AT_ONCE = 1 << 20
"""Maximum bytes of a gathered response to await before one read, because each wake-up costs more than the bytes. A
response of 4 MiB is read in 4 or 5 pieces instead of 18.
"""

_head = RESPONSE_HEAD.unpack_from


class BrokerToClient(BrokerResponses):
    """Reader of the broker's responses, which go to the client."""

    __slots__ = (
        "_buffer",
        "_connection",
        "_is_planned",
        "_recv",
        "_send",
        "_unread_bytes",
        "_wait_for",
        "_waits_for",
        "gathering",
        "is_paused",
        "reads_little",
        "stream",
    )

    def __init__(self, connection: ForwardedConnection, transport: Transport, pending: Pending) -> None:
        super().__init__(pending, connection.plane.limits.frame_bytes)
        self._connection = connection
        self._buffer = connection.plane.reactor.buffer
        self._send = transport.send
        self._recv = transport.recv_into  # the broker's transport once it is connected; until then nothing is read
        self._wait_for = transport.wait_for
        self._waits_for = 1
        self._unread_bytes = NOTHING
        self.reads_little = False
        """True if the last walk left many bytes unprocessed."""
        self.is_paused = False
        self._is_planned = False
        """True while `call_in_later_iteration` holds `_resume`."""
        self.gathering: Gathering | None = None
        self.stream: response_dispatch.ResponseStream | None = None
        """Response that is forwarded in parts. Its request is the first pending one until all of it is admitted."""

    def ready(self, mask: int) -> None:
        """Handle events of the broker's socket: plain reads on the fast path, all else by `_event`."""
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
        if upto != count and not self.walked(upto, count):
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

    def walked(self, upto: int, count: int) -> bool:
        """Return True if all bytes are forwarded as they are in the buffer now."""
        pending, buffer = self.pending, self._buffer
        if not upto and pending and self.stream is None and count >= RESPONSE_HEAD.size:
            size, correlation_id = _head(buffer, 0)
            expected_id, expected = pending[0]
            frame_end = size + SIZE.size
            if correlation_id == expected_id and frame_end == count:  # one whole response, alone in the buffer
                if isinstance(expected, ExpectedResponse):
                    pending.popleft()
                    return expected.on_response(bytes(buffer[:count]))
                if response_dispatch.is_treatment(expected):
                    pending.popleft()
                    self._rewrite_one(expected, count)
                    return False
            elif correlation_id == expected_id and count < frame_end <= self.frame_max:
                self.stream = response_dispatch.begin_stream(expected, size)
        if self.stream is not None:
            upto = self._advance(self.stream, buffer, upto, count)
        if upto != count:
            self._walk(buffer, upto, count)
        return upto == count

    def sent(self, sent: int, count: int) -> None:
        if sent < 0:
            self._connection.client_left(OSError(-sent, strerror(-sent)))
            return
        self._connection.to_client(self._buffer[sent:count])
        self._connection.update()

    def describe(self) -> dict[str, object]:
        return self._connection.describe()

    def failed(self, error: Exception) -> None:
        if isinstance(error, RequestRefused):
            self._connection.failed(error)
        elif isinstance(error, RemoteProtocolError | UnusableResponse):
            self._connection.end("upstream-protocol-error", reason=str(error))
        elif isinstance(error, OSError):
            self._connection.end("upstream-unreachable", reason=str(error))
        else:
            self._connection.failed(error)

    def connected(self, transport: Transport) -> None:
        self._recv = transport.recv_into
        self._wait_for = transport.wait_for

    def send_by(self, transport: Transport) -> None:
        """Write to the client by another transport over the same socket."""
        self._send = transport.send

    @property
    def is_straight(self) -> bool:
        """True if a whole receive buffer may be read."""
        return not (self._unread_bytes or self.gathering is not None or self.reads_little)

    @property
    def held(self) -> int:
        """Bytes kept here or reserved for the gathered response."""
        return memory_of(self._unread_bytes) + (0 if self.gathering is None else self.gathering.whole)

    def drop(self) -> None:
        self.gathering, self.stream, self._unread_bytes = None, None, NOTHING

    @property
    def owes_client(self) -> bool:
        gathering = self.gathering
        return self.to_come > 0 or (
            gathering is not None and not isinstance(gathering.subject, response_dispatch.OwnResponse)
        )

    @property
    def to_come(self) -> int:
        """Bytes of a response that has begun to reach the client. Those kept here count."""
        return self.missing + (0 if self.stream is None else self.stream.remaining)

    @property
    def is_busy(self) -> bool:
        """True while a response is not processed completely, also one to a request of the proxy."""
        return bool(self.to_come or self._unread_bytes or self.gathering is not None or self.is_paused)

    def _event(self, mask: int) -> None:
        connection = self._connection
        if mask & WRITE:
            connection.upstream.flush()
        if not connection.closed and mask & ~WRITE and connection.reads_broker:
            self._read()

    def _read(self) -> None:
        gathering, unread_bytes = self.gathering, self._unread_bytes
        room = None if gathering is None else gathering.room
        self._buffer[: len(unread_bytes)] = unread_bytes
        if room is None:
            buffer_end = len(unread_bytes) + READ_AFTER_PAUSE if self.reads_little else None
            target = self._buffer[len(unread_bytes) : buffer_end]
        else:
            target = room
        try:
            count = self._recv(target)
        except BlockingIOError:
            return
        except OSError as error:
            self._connection.broker_left(error)
            return
        if not count:
            self._connection.broker_left(None)
            return
        self._unread_bytes = NOTHING
        if gathering is None or room is None:
            self._walk(self._buffer, 0, len(unread_bytes) + count)
            return
        gathering.filled(count)
        self._await(gathering.missing)
        if gathering.is_whole:
            self._walk(self._buffer, 0, 0)

    def resume_soon(self) -> None:
        """Continue in a later loop iteration. Called once the client's socket accepted all bytes."""
        if not self._is_planned:
            self._is_planned = True
            self._connection.plane.reactor.call_in_later_iteration(self, self._resume)

    def _resume(self) -> None:
        self._is_planned = False
        if self._connection.closed:
            return
        remaining, self._unread_bytes, self.is_paused = self._unread_bytes, NOTHING, False
        self._walk(remaining, 0, len(remaining), self._connection.plane.reactor.later_share_ends())

    def sweep(self) -> None:
        """Wake up once a second for any bytes of a gathered response, however many the kernel should wait for."""
        self._await(0)

    def _await(self, missing: int) -> None:
        count = READ_AT_ONCE if missing >= READ_AT_ONCE else missing if missing >= len(self._buffer) else 1
        if count != self._waits_for:
            self._wait_for(count)
            self._waits_for = count

    def _rewrite_one(self, expected: response_dispatch.Rewrites, count: int) -> None:
        buffer = self._buffer
        self._connection.plane.reactor.iterations.doing = self._connection, expected
        data = expected.rewrite(buffer[4:count], self._connection.context) or buffer[:count]
        self.bytes += len(data)
        send = self._send
        try:
            sent = send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._connection.client_left(error)
            return
        if sent != len(data):
            self._connection.to_client(memoryview(data)[sent:])
            self._connection.update()

    def _walk(self, buffer: memoryview, at: int, end: int, deadline: float | None = None) -> None:
        """Walk buffer[at:end] until `deadline` (None: for this connection's share of the iteration). Send all with one
        write.
        """
        pieces: list[Data] = [buffer[:at]] if at else []
        error = None
        try:
            at = self._collect(buffer, pieces, at, end, deadline)
        except (RemoteProtocolError, UnusableResponse) as raised:
            error = raised
        if pieces and not self._connection.closed:
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self.bytes += len(data)
            self._connection.to_client(data)
        if error is not None:
            self.failed(error)
            return
        if not self._connection.closed:
            self._unread_bytes = keep(buffer, at, end, self._buffer)
            if buffer is self._buffer:
                self.reads_little = must_read_little(end - at, self.reads_little)
        self._connection.held.update()
        self._connection.update()

    def _collect(self, buffer: memoryview, pieces: list[Data], at: int, end: int, deadline: float | None) -> int:
        """Append the bytes for the client to `pieces`. Return where the walk stopped."""
        reactor = self._connection.plane.reactor
        while at < end or (self.gathering is not None and self.gathering.is_whole):
            upto = self.receive(buffer, at, end) if self.gathering is None else at
            if upto > at:
                pieces.append(buffer[at:upto])
                at = upto
                continue
            if self.gathering is not None:
                at = self._gather(self.gathering, buffer, pieces, at, end)
            elif self.stream is not None:
                upto = self._advance(self.stream, buffer, at, end)
                if upto == at:
                    break
                pieces.append(buffer[at:upto])
                at = upto
            else:
                response = self.peek(buffer, at, end)
                if response is None:
                    break
                at = self._take(response, buffer, pieces, at, end)
            if at < end:
                if deadline is None:
                    deadline = reactor.share_ends()
                if reactor.now() >= deadline:
                    self.is_paused = True
                    break
        return at

    def _take(self, response: Due, buffer: memoryview, pieces: list[Data], at: int, end: int) -> int:
        frame_end = at + response.size + 4
        if response.expected is TOKEN:
            upto = self.admit(response.size, at, end)
            pieces.append(buffer[at:upto])
            return upto
        if frame_end > end:
            self.stream = response_dispatch.begin_stream(response.expected, response.size)
            if self.stream is not None:
                return at
        limit = self._connection.plane.limits.collected_bytes
        if response.size > limit:
            raise RemoteProtocolError(
                f"a response of {response.size} bytes is larger than limits.collected_bytes ({limit})"
            )
        self.pending.popleft()
        if isinstance(response.expected, response_dispatch.OwnResponse):
            self._connection.own_response_begins()
        if frame_end > end:
            self.gathering = Gathering(response.size, response.expected, presized=True)
            self._connection.held.update()
            if self.gathering.room is not None:
                self._await(frame_end - end)
            return at
        self._deliver(response.expected, buffer[at:frame_end], pieces)
        return frame_end

    def _advance(self, stream: response_dispatch.ResponseStream, buffer: memoryview, at: int, end: int) -> int:
        """Return up to where buffer[at:end] can be forwarded. `at`: more bytes are needed."""
        after = at + stream.advance(buffer[at:end])
        if not stream.remaining:
            self.pending.popleft()
            self.stream = None
        self.missing = max(after - end, 0)
        return min(after, end)

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
