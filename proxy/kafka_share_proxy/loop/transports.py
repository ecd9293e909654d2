"""A socket of the loop, in plain text or TLS, with one interface: `recv_into`, `send`, `want`, `close`.

The plain transport's `recv_into` and `send` are the socket's own methods, so it costs nothing. `send` of TLS reports
bytes as sent only when their ciphertext is in the kernel: until then the caller repeats the same bytes, as with
OpenSSL.
"""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from kafka_share_proxy.loop.interfaces import Data, TlsBuffers
from kafka_share_proxy.loop.polling import ERROR, HANGUP, PEER_LEFT, READ, WRITE
from kafka_share_proxy.loop.reactor import Reactor, ReactorTimer
from kafka_share_proxy.loop.server_names import NamedObject
from kafka_share_proxy.loop.tls_memory import CHUNK_BYTES, ESTABLISHED_BYTES, HANDSHAKE_BYTES, TlsMemory, buffer_bytes
from kafka_share_proxy.wire.errors import RemoteProtocolError, ServerNameRefused

HANDSHAKE_FEED_BYTES = 16 * 1024
"""Maximum bytes of ciphertext read in one step during a handshake: OpenSSL's buffers keep their maximum size."""

RECORDS_PER_READ = 64
"""Maximum number of TLS records decrypted by one `recv_into`. The rest waits for later iterations."""

LEFT_IN_HANDSHAKE = "the peer left during the TLS handshake"
TOO_SLOW = "TLS handshake timed out"

_CIPHERTEXT = memoryview(bytearray(CHUNK_BYTES))
_UNLIMITED = TlsMemory()
"""Account of connections to brokers and other proxies."""


class PlainTransport:
    """Transport over a socket without TLS."""

    __slots__ = ("_fd", "_mask", "_reactor", "_ready", "_socket", "recv_into", "send", "sendmsg")

    is_established = True
    buffers = None
    """No TLS (see TlsTransport)."""

    def __init__(self, reactor: Reactor, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._reactor = reactor
        self._socket = sock
        self._fd = sock.fileno()
        self._mask = 0
        self.recv_into: Callable[[memoryview], int] = sock.recv_into
        self.send: Callable[[Data], int] = sock.send
        self.sendmsg: Callable[[Sequence[Data]], int] | None = sock.sendmsg

    @property
    def fd(self) -> int:
        """File descriptor. Negative once it is closed."""
        return self._fd

    def attach(self, ready: Callable[[int], None], mask: int) -> None:
        self._ready = ready
        self.want(mask)

    def want(self, mask: int) -> None:
        """See Transport. With mask 0 the socket is not registered: epoll would report a reset again and again."""
        if mask == self._mask or self._fd < 0:
            return
        if not self._mask:
            self._reactor.register(self._fd, mask, self._ready)
        elif mask:
            self._reactor.modify(self._fd, mask)
        else:
            self._reactor.unregister(self._fd)
        self._mask = mask

    def wait_for(self, count: int) -> None:
        """See Transport. Linux limits the count to the size of its buffers, and reports earlier if memory is short."""
        if sys.platform == "linux":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def send_eof(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def discard_received(self) -> bool:
        """See Transport. Ciphertext is not decrypted."""
        try:
            return not self.recv_into(self._reactor.buffer)
        except BlockingIOError:
            return False

    def cut(self) -> None:
        """End the stream in both directions, also for other processes that have the socket."""
        with suppress(OSError):  # the peer has gone
            self._socket.shutdown(socket.SHUT_RDWR)

    def peek(self, buffer: memoryview) -> int:
        """Copy the first received bytes without consuming them, and return how many. Raises as `recv_into`."""
        return self._socket.recv_into(buffer, 0, socket.MSG_PEEK)

    def close(self) -> None:
        """See Transport. Drops the callback, so that closed connections leave no reference cycle."""
        if self._fd >= 0:
            self.want(0)
            self._fd = -1
            self._reactor.close(self._socket)
            self._ready = _ignore


def _ignore(_mask: int) -> None: ...


class TlsTransport:
    """TLS over a socket, through memory buffers.

    As client it performs the handshake by itself. As server it is driven by `handshakes.Handshakes` until then.
    """

    sendmsg = None

    __slots__ = (
        "_alarm",
        "_encrypted_bytes",
        "_has_sent_eof",
        "_incoming",
        "_incoming_peak",
        "_is_at_eof",
        "_is_closed",
        "_is_established",
        "_is_read_planned",
        "_is_step_queued",
        "_mask",
        "_may_have_records",
        "_memory",
        "_memory_in_use",
        "_object",
        "_outgoing",
        "_outgoing_peak",
        "_plain",
        "_reactor",
        "_ready",
        "_starts_handshake",
        "_unsent",
    )

    def __init__(
        self,
        reactor: Reactor,
        sock: socket.socket | PlainTransport,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_hostname: str | None,
        handshake_timeout_s: float | None,
        memory: TlsMemory = _UNLIMITED,
    ) -> None:
        """`handshake_timeout_s` is None if the caller checks the time."""
        self._reactor = reactor
        self._plain = sock if isinstance(sock, PlainTransport) else PlainTransport(reactor, sock)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self._memory = memory
        self._memory_in_use = HANDSHAKE_BYTES
        self._incoming_peak = self._outgoing_peak = 0
        memory.used += HANDSHAKE_BYTES
        self._mask = 0
        self._unsent = b""
        """Ciphertext that the kernel has not accepted."""
        self._encrypted_bytes = 0
        """Bytes of clear text that are encrypted and not reported as sent."""
        self._is_at_eof = False
        self._is_established = False
        self._has_sent_eof = False
        self._is_closed = False
        self._is_step_queued = False
        self._is_read_planned = False
        """True while received records wait for a later iteration. The socket is not read then."""
        self._may_have_records = True
        """True unless the last `recv_into` decrypted all whole records. The kernel reports only later bytes."""
        self._starts_handshake = not server_side
        self._alarm: ReactorTimer | None = None
        if handshake_timeout_s is not None:
            self._alarm = reactor.call_at(reactor.now() + handshake_timeout_s, self._too_slow)

    def describe(self) -> dict[str, object]:
        describe = getattr(getattr(getattr(self, "_ready", None), "__self__", None), "describe", dict)
        return dict(describe())

    def attach(self, ready: Callable[[int], None], mask: int) -> None:
        self._ready = ready
        self._mask = mask
        self._plain.attach(self._on_event, READ)
        if self._is_established:
            self._update_mask()
        elif self._starts_handshake:
            self._queue()

    def want(self, mask: int) -> None:
        resumes = mask & READ and not self._mask & READ
        self._mask = mask
        self._update_mask()
        if resumes and self._is_established and (self._object.pending() or self._incoming.pending):
            self._reactor.call_soon(self, self._plan_read)

    def recv_into(self, buffer: memoryview) -> int:
        """See Transport. At most RECORDS_PER_READ records."""
        if not self._is_established:
            raise BlockingIOError
        filled = 0
        fed = False
        records = 0
        self._may_have_records = True
        while filled < len(buffer) and records < RECORDS_PER_READ:
            is_empty = not (self._incoming.pending or self._is_at_eof or self._object.pending())
            if is_empty:  # a read would raise an exception, which costs a microsecond
                if fed or not self._feed():
                    self._may_have_records = False
                    break
                fed = True
            try:
                count = self._object.read(len(buffer) - filled, buffer[filled:])
            except ssl.SSLWantReadError:
                if self._is_at_eof or fed or not self._feed():
                    self._may_have_records = False
                    break
                fed = True
                continue
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                self._is_at_eof = True
                break
            if not count:
                self._is_at_eof = True
                break
            filled += int(count)
            records += 1
        self._push()
        if filled or self._is_at_eof:
            return filled
        raise BlockingIOError

    def send(self, data: Data) -> int:
        if not self._is_established:
            raise BlockingIOError
        if not self._encrypted_bytes:
            self._encrypted_bytes = self._object.write(data[: self._memory.chunk_bytes])
        if not self._push():
            raise BlockingIOError
        accepted, self._encrypted_bytes = self._encrypted_bytes, 0
        return accepted

    def wait_for(self, count: int) -> None:
        """See Transport. Not supported: the clear-text length is known only after decryption."""

    def send_eof(self) -> None:
        self._send_close_notify()
        self._has_sent_eof = True
        self._plain.send_eof()

    def discard_received(self) -> bool:
        return self._plain.discard_received()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._send_close_notify()
        self._plain.close()
        self._reactor.call_soon(self, self._forget)

    # Calls of the pump (interfaces.TlsBuffers)

    @property
    def fd(self) -> int:
        return self._plain.fd

    @property
    def is_established(self) -> bool:
        """True from the end of the handshake until the close notification is sent."""
        return self._is_established

    @property
    def buffers(self) -> TlsBuffers:
        session = getattr(self._object, "_sslobj", self._object)  # the object in C: its wrapper costs a call
        return TlsBuffers(self, self._incoming, self._outgoing, session)

    @property
    def chunk_bytes(self) -> int:
        """Maximum bytes to encrypt in one step."""
        return self._memory.chunk_bytes

    def counted_received(self, size: int) -> int:
        """Count the memory for ciphertext of this size. Returns the size of the next read."""
        if size > self._incoming_peak:
            self._count_memory(buffer_bytes(size) - buffer_bytes(self._incoming_peak))
            self._incoming_peak = size
        return self._memory.chunk_bytes

    def counted_sent(self, size: int) -> None:
        if size > self._outgoing_peak:
            self._count_memory(buffer_bytes(size) - buffer_bytes(self._outgoing_peak))
            self._outgoing_peak = size

    def not_accepted(self, ciphertext: bytes, size: int) -> None:
        """Keep the rest of `size` encrypted bytes. The caller repeats these, as in `send`."""
        self._unsent, self._encrypted_bytes = ciphertext, size
        self._update_mask()

    def flush_own(self) -> None:
        """Send messages of TLS itself."""
        self._push()

    def continue_later(self) -> None:
        """Read whole records that are received already in a later iteration."""
        self._may_have_records = True
        self._plan_read()

    def proceed(self) -> None:
        """Continue a server's handshake with the received bytes. Raises OSError or RemoteProtocolError."""
        self._feed()
        self._proceed()

    @property
    def server_name(self) -> str | None:
        """Name that the client requested, if the context requires one (`server_names`)."""
        return self._object.server_name if isinstance(self._object, NamedObject) else None

    @property
    def waits_for_peer(self) -> bool:
        return not self._is_step_queued

    def failed(self, error: Exception) -> None:
        owner = getattr(self._ready, "__self__", None)
        if owner is not None:
            owner.failed(error)

    def _forget(self) -> None:
        """Drop OpenSSL's objects and the callback at the end of the iteration: until then it may raise."""
        self._count_memory(-self._memory_in_use)
        del self._object, self._incoming, self._outgoing
        self._ready, self._unsent = _ignore, b""

    def _send_close_notify(self) -> None:
        if self._is_established and not self._unsent and not self._encrypted_bytes:
            with suppress(OSError, ValueError):  # the peer's own close notification is not awaited
                self._object.unwrap()
            with suppress(OSError):  # the peer has gone
                self._push()
        self._is_established = False

    def _on_event(self, mask: int) -> None:
        if self._has_sent_eof:
            self._ready(mask)
            return
        if not self._is_established:
            self._handshake(mask)
            return
        if mask & WRITE and self._unsent and not self._encrypted_bytes:
            self._push()  # only TLS's own messages were waiting
            self._update_mask()
        events = mask & (self._mask | ERROR | HANGUP)
        if events:
            self._ready(events)
        self._plan_read()

    def _plan_read(self) -> None:
        """Plan another read if OpenSSL holds whole records, which the kernel does not report again."""
        if self._is_read_planned or not (self._is_established and self._may_have_records and self._mask & READ):
            return
        if self._object.pending() or self._incoming.pending:
            self._is_read_planned = True
            self._update_mask()
            self._reactor.call_in_later_iteration(self, self._read_again)

    def _read_again(self) -> None:
        self._is_read_planned = False
        if self._is_closed:
            return
        if self._is_established and self._mask & READ:
            before = (self._object.pending(), self._incoming.pending)
            self._ready(READ)
            if self._is_established and before != (self._object.pending(), self._incoming.pending):
                self._plan_read()
        if not self._is_read_planned:
            self._update_mask()

    def _handshake(self, mask: int) -> None:
        if self._is_step_queued and not mask & ERROR:  # the peer sent its last bytes, which wait for a later iteration
            self._plain.want(0)
        elif mask & READ:
            self._feed()
            if self._is_at_eof and not self._incoming.pending:
                raise ConnectionResetError(LEFT_IN_HANDSHAKE)
            self._queue()
        elif mask & (ERROR | HANGUP | PEER_LEFT):
            raise ConnectionResetError(LEFT_IN_HANDSHAKE)
        else:
            self._proceed()

    def _queue(self) -> None:
        """Run the next handshake step, which takes up to a millisecond, in a later iteration."""
        self._is_step_queued = True
        self._plain.want(PEER_LEFT)
        self._reactor.call_in_later_iteration(self, self._proceed)

    def _proceed(self) -> None:
        self._is_step_queued = False
        if self._is_established or self._is_closed:
            return
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            if self._is_at_eof:
                raise ConnectionResetError(LEFT_IN_HANDSHAKE) from None
            self._push()
            self._update_mask()
            return
        except ssl.SSLError as error:
            self._push_alert()
            if isinstance(self._object, NamedObject) and self._object.refusal:
                raise ServerNameRefused(self._object.refusal) from error
            raise RemoteProtocolError(f"TLS handshake failed: {error.reason or error}") from error
        self._is_established = True
        self._count_memory(ESTABLISHED_BYTES - HANDSHAKE_BYTES)
        if self._alarm is not None:
            self._alarm.cancel()
        self._push()
        self._update_mask()
        if self._mask & WRITE:
            self._ready(WRITE)
        self._plan_read()

    def _feed(self) -> bool:
        """Read ciphertext from the kernel. Returns False if there is none. Raises OSError if the peer reset."""
        try:
            most = self._memory.chunk_bytes if self._is_established else HANDSHAKE_FEED_BYTES
            count = self._plain.recv_into(_CIPHERTEXT[:most])
        except BlockingIOError:
            return False
        if count:
            self._incoming.write(_CIPHERTEXT[:count])
            if self._is_established:
                self.counted_received(self._incoming.pending)
        else:
            self._is_at_eof = True
            self._incoming.write_eof()
        return True

    def _push(self) -> bool:
        if self._outgoing.pending:
            if self._is_established:
                self.counted_sent(self._outgoing.pending)
            self._unsent += self._outgoing.read()
        if not self._unsent:
            return True
        with suppress(BlockingIOError):
            self._unsent = self._unsent[self._plain.send(self._unsent) :]
        if self._unsent:
            self._update_mask()
        return not self._unsent

    def _count_memory(self, change: int) -> None:
        self._memory_in_use += change
        self._memory.used += change

    def _push_alert(self) -> None:
        with suppress(OSError):
            self._push()  # the alert that contains the reason for the peer

    def _update_mask(self) -> None:
        handshake_mask = PEER_LEFT if self._is_step_queued else READ
        mask = self._mask if self._is_established else handshake_mask
        if self._is_read_planned:
            mask = mask & ~READ or PEER_LEFT
        self._plain.want(mask | WRITE if self._unsent else mask)

    def _too_slow(self) -> None:
        if not self._is_established:
            self.failed(TimeoutError(TOO_SLOW))
