"""One direction of a connection: the broker's answers to the client."""

from __future__ import annotations

from errno import EIO
from os import strerror
from typing import Any, Protocol

from proxy.forwarding import answer_dispatch
from proxy.forwarding.broker_answers import TOKEN, BrokerAnswers, Due
from proxy.forwarding.gathering import Gathering
from proxy.forwarding.interfaces import AwaitedAnswer
from proxy.forwarding.walking import Pending
from proxy.loop.polling import READ, WRITE
from proxy.loop.transports import Data, Transport
from proxy.wire.errors import AnswerUnusable, RemoteProtocolError, RequestRefused
from proxy.wire.frame_sizes import ANSWER_HEAD

READ_AT_ONCE = 1 << 20
"""Bytes of a gathered answer for whose arrival it is waited at most, before they are read: each wake-up costs more than
they do. An answer of 4 MiB is read in 4 or 5 pieces instead of 18."""

_head = ANSWER_HEAD.unpack_from


class Answered(answer_dispatch.TakesAnswers, Protocol):
    """The connection whose answers pass."""

    @property
    def reads_broker(self) -> bool:
        """Whether more of the broker may be read now."""

    def to_client(self, data: Data) -> None:
        """Pass on, or keep until the client takes it."""

    def flush_broker(self) -> None:
        """The broker takes more."""

    def own_answer_begins(self) -> None:
        """An answer to a request of the proxy's own has left the queue of pending ones."""

    def client_left(self, error: OSError | None) -> None:
        """The client's half has gone."""

    def broker_left(self, error: OSError | None) -> None:
        """The broker's half has gone."""

    def end(self, event: str, /, **context: Any) -> None:
        """Close the client's connection and the broker's."""


class BrokerToClient(BrokerAnswers):
    """Reads the broker, walks its answers, writes to the client. See `connection` for how it all hangs together."""

    __slots__ = (
        "_buffer",
        "_connection",
        "_kept",
        "_recv",
        "_send",
        "_wait_for",
        "_waits_for",
        "gathering",
    )

    def __init__(self, connection: Answered, transport: Transport, pending: Pending) -> None:
        super().__init__(pending, connection.plane.limits.frame_bytes)
        self._connection = connection
        self._buffer = connection.plane.reactor.buffer
        self._send = transport.send
        self._recv = transport.recv_into  # the broker's, once there is one; until then nothing is read
        self._wait_for = transport.wait_for
        self._waits_for = 1
        self._kept = b""
        self.gathering: Gathering | None = None
        """The answer that is being gathered."""

    def ready(self, mask: int) -> None:
        """The broker's socket is ready: the fast path, or whatever else there is."""
        if mask != READ or not self.flows:
            self._event(mask)
            return
        buffer = self._buffer
        recv = self._recv  # called by a name of its own: calling a slot is slow (CPython 3.11 to 3.13 do not cache it)
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
        """See pump.FedWalk."""
        self._connection.broker_left(OSError(code, strerror(code)) if code else None)

    def walked(self, upto: int, count: int) -> None:
        """See pump.FedWalk."""
        if upto or not self._rewrites_one(count):
            self._walk(0, upto, count)

    def sent(self, sent: int, count: int) -> None:
        """See pump.FedWalk."""
        if sent < 0:
            self._connection.client_left(OSError(-sent, strerror(-sent)))
            return
        self._connection.to_client(self._buffer[sent:count])
        self._connection.update()

    def describe(self) -> dict[str, object]:
        """See connection_parts.PartOwner."""
        return self._connection.describe()

    def failed(self, error: Exception) -> None:
        """See faults.FaultOwner. Trouble in the TLS handshake comes here too."""
        if isinstance(error, RequestRefused):
            self._connection.failed(error)
        elif isinstance(error, RemoteProtocolError | AnswerUnusable):
            self._connection.end("upstream-protocol-error", reason=str(error))
        elif isinstance(error, OSError):
            self._connection.end("upstream-unreachable", reason=str(error))
        else:
            self._connection.failed(error)

    def connected(self, transport: Transport) -> None:
        """There is a broker to read."""
        self._recv = transport.recv_into
        self._wait_for = transport.wait_for

    @property
    def is_straight(self) -> bool:
        """Whether nothing of an answer is kept here."""
        return not (self._kept or self.gathering is not None)

    @property
    def held(self) -> int:
        """Bytes of the broker that are kept here, or have their room."""
        return len(self._kept) + (0 if self.gathering is None else self.gathering.whole)

    def drop(self) -> None:
        """Let go of what is kept: the connection has ended, and may wait for the garbage collector for long."""
        self.gathering, self._kept = None, b""

    @property
    def owes_client(self) -> bool:
        """Whether an answer to the client is only half here."""
        gathering = self.gathering
        return self.left > 0 or (gathering is not None and not isinstance(gathering.subject, answer_dispatch.OwnAnswer))

    def _event(self, mask: int) -> None:
        connection = self._connection
        if mask & WRITE:
            connection.flush_broker()
        if not connection.closed and mask & ~WRITE and connection.reads_broker:
            self._read()

    def _read(self) -> None:
        """Read into the answer that is gathered, or behind what is kept: the beginning of a head."""
        gathering, kept = self.gathering, self._kept
        room = None if gathering is None else gathering.room
        self._buffer[: len(kept)] = kept
        try:
            count = self._recv(self._buffer[len(kept) :] if room is None else room)
        except BlockingIOError:
            return
        except OSError as error:
            self._connection.broker_left(error)
            return
        if not count:
            self._connection.broker_left(None)
            return
        self._kept = b""
        if gathering is None or room is None:
            self._walk(0, 0, len(kept) + count)
            return
        gathering.filled(count)
        self._await(gathering.left)
        if gathering.is_whole:
            self._walk(0, 0, 0)

    def sweep(self) -> None:
        """Once a second what has come of a gathered answer is read, however much the kernel was told to wait for."""
        self._await(0)

    def _await(self, left: int) -> None:
        """Sleep until much of what is left of a gathered answer is there; the last of it is read as it comes."""
        count = READ_AT_ONCE if left >= READ_AT_ONCE else left if left >= len(self._buffer) else 1
        if count != self._waits_for:
            self._wait_for(count)
            self._waits_for = count

    def _rewrites_one(self, count: int) -> bool:
        """The commonest of what does not simply pass: one whole answer, alone in the buffer, rewritten or awaited."""
        pending, buffer = self.pending, self._buffer
        if not pending or count < ANSWER_HEAD.size:
            return False
        size, correlation_id = _head(buffer, 0)
        asked, expected = pending[0]
        if isinstance(expected, AwaitedAnswer) and correlation_id == asked and size + 4 == count:
            pending.popleft()
            expected.came(buffer[:count])
            return True
        if not answer_dispatch.is_treatment(expected) or correlation_id != asked or size + 4 != count:
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

    def _walk(self, start: int, at: int, end: int) -> None:
        """Walk buffer[at:end]; what stands from `start` to `at` passes already. One write for all of it."""
        pieces: list[Data] = [self._buffer[start:at]] if at > start else []
        trouble = None
        try:
            at = self._collect(pieces, at, end)
        except (RemoteProtocolError, AnswerUnusable) as error:
            trouble = error
        if pieces and not self._connection.closed:
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self.bytes += len(data)
            self._connection.to_client(data)
        if trouble is not None:
            self.failed(trouble)
            return
        if at < end and not self._connection.closed:
            self._kept = bytes(self._buffer[at:end])
        self._connection.held.update()
        self._connection.update()

    def _collect(self, pieces: list[Data], at: int, end: int) -> int:
        """Append what the client gets; return up to where the bytes could be judged."""
        while at < end or (self.gathering is not None and self.gathering.is_whole):
            if self.gathering is not None:
                at = self._gather(self.gathering, pieces, at, end)
                continue
            upto = self.receive(self._buffer, at, end)
            if upto == at:
                due = self.peek(self._buffer, at, end)
                if due is None:
                    break
                at = self._take(due, pieces, at, end)
            else:
                pieces.append(self._buffer[at:upto])
                at = upto
        return at

    def _take(self, due: Due, pieces: list[Data], at: int, end: int) -> int:
        """An answer that does not simply pass."""
        behind = at + due.size + 4
        if due.expected is TOKEN:
            upto = self.admit(due.size, at, end)
            pieces.append(self._buffer[at:upto])
            return upto
        limit = self._connection.plane.limits.collected_bytes
        if due.size > limit:
            raise RemoteProtocolError(f"an answer of {due.size} bytes is larger than limits.collected_bytes ({limit})")
        self.pending.popleft()
        if isinstance(due.expected, answer_dispatch.OwnAnswer):
            self._connection.own_answer_begins()
        if behind > end:
            self.gathering = Gathering(due.size, due.expected, presized=True)
            self._connection.held.update()
            if self.gathering.room is not None:
                self._await(behind - end)
            return at
        self._deliver(due.expected, self._buffer[at:behind], pieces)
        return behind

    def _gather(self, gathering: Gathering, pieces: list[Data], at: int, end: int) -> int:
        upto = gathering.add(self._buffer, at, end)
        if gathering.is_whole:
            self.gathering = None
            self._deliver(gathering.subject, gathering.frame, pieces)
        return upto

    def _deliver(self, expected: object, frame: memoryview, pieces: list[Data]) -> None:
        piece = answer_dispatch.deliver(self._connection, expected, frame)
        if piece is not None:
            pieces.append(piece)
