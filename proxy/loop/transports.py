"""A socket of the loop, in plain text or TLS, in one shape: `recv_into`, `send`, `want`, `close`.

The plain transport's `recv_into` and `send` are the socket's own methods, so it costs nothing. The TLS one runs
OpenSSL over two memory buffers in the same loop. Its `send` says that bytes were taken only when all of their
ciphertext is in the kernel: as with OpenSSL itself, the caller repeats the same bytes until then. So "sent" means the
same on both, and what waits is counted once.
"""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from proxy.loop.polling import ERROR, HANGUP, PEER_LEFT, READ, WRITE
from proxy.loop.reactor import Reactor, ReactorTimer
from proxy.wire.errors import RemoteProtocolError

CLEARTEXT_BYTES = 64 * 1024
"""Most bytes encrypted ahead of the kernel, per connection and direction."""

CIPHERTEXT_BYTES = 64 * 1024
"""Most bytes of ciphertext taken from the kernel at once; shared by all."""

_CIPHERTEXT = memoryview(bytearray(CIPHERTEXT_BYTES))


Data = bytes | bytearray | memoryview


class Transport(Protocol):
    """What a connection needs of a socket."""

    @property
    def recv_into(self) -> Callable[[memoryview], int]:
        """Bytes read; 0 at the end of the stream; BlockingIOError when there are none."""

    @property
    def send(self) -> Callable[[Data], int]:
        """Bytes taken; BlockingIOError when none can be."""

    @property
    def sendmsg(self) -> Callable[[Sequence[Data]], int] | None:
        """`send` for several pieces at once; None where they have to be made one."""

    def attach(self, ready: Callable[[int], None], mask: int) -> None:
        """Call `ready(mask)` when there is something to do."""

    def want(self, mask: int) -> None:
        """Wait for READ, WRITE, PEER_LEFT; 0 for nothing at all (not even a reset is reported then)."""

    def wait_for(self, count: int) -> None:
        """Report READ once so many bytes have come, or the end, where the kernel can; 1: as soon as there is any."""

    def part(self) -> None:
        """Tell the peer that nothing more comes; what it still sends is only to be dropped.

        Raises:
            OSError: the peer has gone.
        """

    def drop(self) -> bool:
        """Throw away what the peer sent; True when it has ended. Once it was told the end only.

        Raises:
            OSError: the peer has gone.
        """

    def close(self) -> None:
        """End it; harmless twice."""


class PlainTransport:
    """A socket as it is."""

    __slots__ = ("_fd", "_mask", "_reactor", "_ready", "_socket", "recv_into", "send", "sendmsg")

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
        """The descriptor; negative once it is closed."""
        return self._fd

    def attach(self, ready: Callable[[int], None], mask: int) -> None:
        """See Transport."""
        self._ready = ready
        self.want(mask)

    def want(self, mask: int) -> None:
        """See Transport. Nothing wanted = not registered: epoll would report a reset again and again."""
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
        """See Transport. Linux keeps the count below what its buffers hold, and reports less where memory is short."""
        if sys.platform == "linux":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def part(self) -> None:
        """See Transport."""
        self._socket.shutdown(socket.SHUT_WR)

    def drop(self) -> bool:
        """See Transport. One receive: what is left is reported again."""
        try:
            return not self.recv_into(self._reactor.buffer)
        except BlockingIOError:
            return False

    def close(self) -> None:
        """See Transport."""
        if self._fd >= 0:
            self.want(0)
            self._fd = -1
            self._reactor.close(self._socket)


class TlsTransport:
    """TLS over a socket, through memory buffers. Hand-shakes by itself; the owner sees only clear text."""

    sendmsg = None

    __slots__ = (
        "_ahead",
        "_alarm",
        "_ended",
        "_incoming",
        "_mask",
        "_object",
        "_outgoing",
        "_parted",
        "_plain",
        "_reactor",
        "_ready",
        "_shaken",
        "_unsent",
    )

    def __init__(
        self,
        reactor: Reactor,
        sock: socket.socket,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_hostname: str | None,
        handshake_timeout_s: float,
    ) -> None:
        self._reactor = reactor
        self._plain = PlainTransport(reactor, sock)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self._mask = 0
        self._unsent = b""
        self._ahead = 0
        self._ended = False
        self._shaken = False
        self._parted = False
        self._alarm: ReactorTimer | None = reactor.call_at(reactor.now() + handshake_timeout_s, self._too_slow)

    def describe(self) -> dict[str, object]:
        """What its owner says of itself."""
        describe = getattr(getattr(getattr(self, "_ready", None), "__self__", None), "describe", dict)
        return dict(describe())

    def attach(self, ready: Callable[[int], None], mask: int) -> None:
        """See Transport; the handshake begins here, the first time."""
        self._ready = ready
        self._mask = mask
        self._plain.attach(self._on_event, READ)
        if self._shaken:
            self._watch()
        else:
            self._reactor.call_in_turn(self, self._proceed)

    def want(self, mask: int) -> None:
        """See Transport."""
        resumes = mask & READ and not self._mask & READ
        self._mask = mask
        self._watch()
        if resumes and self._shaken and (self._object.pending() or self._incoming.pending):
            self._reactor.call_soon(self, self._read_on)

    def recv_into(self, buffer: memoryview) -> int:
        """See Transport."""
        if not self._shaken:
            raise BlockingIOError
        filled = 0
        fed = False
        while filled < len(buffer):
            try:
                count = self._object.read(len(buffer) - filled, buffer[filled:])
            except ssl.SSLWantReadError:
                if self._ended or fed or not self._feed():
                    break
                fed = True
                continue
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                self._ended = True
                break
            if not count:
                self._ended = True
                break
            filled += int(count)
        self._push()
        if filled or self._ended:
            return filled
        raise BlockingIOError

    def send(self, data: Data) -> int:
        """See Transport. After BlockingIOError the next call must begin with the same bytes."""
        if not self._shaken:
            raise BlockingIOError
        if not self._ahead:
            self._ahead = self._object.write(data[:CLEARTEXT_BYTES])
        if not self._push():
            raise BlockingIOError
        taken, self._ahead = self._ahead, 0
        return taken

    def wait_for(self, count: int) -> None:
        """See Transport: what has come is known only when it is decrypted."""

    def part(self) -> None:
        """See Transport. Says good-bye if the kernel takes it at once."""
        self._say_farewell()
        self._parted = True
        self._plain.part()

    def drop(self) -> bool:
        """See Transport. Ciphertext is not even decrypted."""
        return self._plain.drop()

    def close(self) -> None:
        """See Transport. Says good-bye if the kernel takes it at once."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._say_farewell()
        self._plain.close()

    def _say_farewell(self) -> None:
        if self._shaken and not self._unsent and not self._ahead:
            with suppress(OSError, ValueError):  # the peer's own good-bye is not waited for
                self._object.unwrap()
            with suppress(OSError):  # it has gone
                self._push()
        self._shaken = False

    def failed(self, error: Exception) -> None:
        """A callback raised: whoever owns the connection ends it."""
        self._ready.__self__.failed(error)  # type: ignore[attr-defined]

    def _on_event(self, mask: int) -> None:
        if self._parted:
            self._ready(mask)
            return
        if not self._shaken:
            self._handshake(mask)
            return
        if mask & WRITE and self._unsent and not self._ahead:
            self._push()  # only TLS's own words were waiting
            self._watch()
        wanted = mask & (self._mask | ERROR | HANGUP)
        if wanted:
            self._ready(wanted)
        self._read_on()

    def _read_on(self) -> None:
        """What OpenSSL holds is not reported by the kernel again."""
        while self._shaken and self._mask & READ and (self._object.pending() or self._incoming.pending):
            before = (self._object.pending(), self._incoming.pending)
            self._ready(READ)
            if self._shaken and before == (self._object.pending(), self._incoming.pending):
                return  # part of a record

    def _handshake(self, mask: int) -> None:
        if mask & READ:
            self._feed()
            self._plain.want(0)  # until it is this one's turn: a step takes about a millisecond
            self._reactor.call_in_turn(self, self._proceed)
            return
        if mask & (ERROR | HANGUP | PEER_LEFT):
            raise ConnectionResetError("the peer left during the TLS handshake")
        self._proceed()

    def _proceed(self) -> None:
        if self._shaken or self._alarm is None:
            return
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            if self._ended:
                raise ConnectionResetError("the peer left during the TLS handshake") from None
            self._push()
            self._watch()
            return
        except ssl.SSLError as error:
            self._push_farewell()
            raise RemoteProtocolError(f"TLS handshake failed: {error.reason or error}") from error
        self._shaken = True
        self._alarm.cancel()
        self._push()
        self._watch()
        if self._mask & WRITE:
            self._ready(WRITE)
        self._read_on()

    def _feed(self) -> bool:
        """Take ciphertext from the kernel; False when there is none. Reset by the peer: OSError."""
        try:
            count = self._plain.recv_into(_CIPHERTEXT)
        except BlockingIOError:
            return False
        if count:
            self._incoming.write(_CIPHERTEXT[:count])
        else:
            self._ended = True
            self._incoming.write_eof()
        return True

    def _push(self) -> bool:
        """Hand ciphertext to the kernel; True when none is left."""
        if self._outgoing.pending:
            self._unsent += self._outgoing.read()
        if not self._unsent:
            return True
        with suppress(BlockingIOError):
            self._unsent = self._unsent[self._plain.send(self._unsent) :]
        if self._unsent:
            self._watch()
        return not self._unsent

    def _push_farewell(self) -> None:
        with suppress(OSError):
            self._push()  # the alert that tells the peer why

    def _watch(self) -> None:
        mask = self._mask if self._shaken else READ
        self._plain.want(mask | WRITE if self._unsent else mask)

    def _too_slow(self) -> None:
        if not self._shaken:
            self.failed(TimeoutError("TLS handshake timed out"))
