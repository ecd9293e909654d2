"""Interfaces that the loop provides (clock, worker threads, notes), and those it uses (pump, descriptions)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.errors import ProxyError

T = TypeVar("T")
Data = bytes | bytearray | memoryview


class Timer(Protocol):
    """Planned call that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the call, unless it was made."""


class Timers(Protocol):
    """Clock and alarms of the reactor."""

    def now(self) -> float: ...

    def wall_ms(self) -> int: ...

    def call_at(self, deadline: float, callback: Callable[[], None]) -> Timer:
        """Call once, at or soon after `deadline` on the clock of `now`."""


class WorkersBusy(ProxyError):
    """Raised if too many computations wait for a thread."""


class Workers(Protocol):
    """Threads for computations of more than about a millisecond (loop/README.md rule 11)."""

    def run(self, work: Callable[[], T], owner: Hashable = None, *, is_large: bool = False) -> Promise[T]:
        """Compute in a thread. Returns a promise that is settled in the loop, or fails with WorkersBusy.

        `work` must not use data that other code changes meanwhile. `is_large`: other work does not wait for it.
        """


class Notes(Protocol):
    """Receiver of events from handlers and state machines, which become log lines and counters (`observe`)."""

    def __call__(self, event: str, /, **context: Any) -> None:
        """Record an event (kebab-case) and its context."""


class Described(Protocol):
    """Object whose work may take a long time."""

    def describe(self) -> Mapping[str, object]: ...


class Request(Protocol):
    """API of the request in progress."""

    @property
    def key(self) -> int: ...

    @property
    def version(self) -> int: ...


class Transport(Protocol):
    """Interface of a socket that a connection needs."""

    @property
    def recv_into(self) -> Callable[[memoryview], int]:
        """Function: return the bytes read, 0 at the end of the stream. Raises BlockingIOError if there is no byte."""

    @property
    def send(self) -> Callable[[Data], int]:
        """Function that returns the bytes accepted. Raises BlockingIOError if none can be."""

    @property
    def sendmsg(self) -> Callable[[Sequence[Data]], int] | None:
        """Function that sends several pieces. None if they have to be joined first."""

    def attach(self, ready: Callable[[int], None], mask: int) -> None:
        """Call `ready(mask)` on the awaited events, at first those in `mask`."""

    def want(self, mask: int) -> None:
        """Wait for READ, WRITE, PEER_LEFT; 0 for nothing at all (not even a reset is reported then)."""

    def wait_for(self, count: int) -> None:
        """Report READ once `count` bytes have arrived, or the end, if the kernel supports it. 1: for any byte."""

    def send_eof(self) -> None:
        """Signal the end of the stream to the peer. Raises OSError if the peer has gone.

        Bytes that it still sends should only be dropped.
        """

    def discard_received(self) -> bool:
        """Discard bytes that the peer sent, after `send_eof`. Returns True when its stream has ended.

        Raises OSError if the peer has gone.
        """

    def close(self) -> None:
        """Close the socket, unless it is closed."""


class TlsBuffers(NamedTuple):
    """TLS of an established connection, for a pump that receives and sends in place of its transport."""

    transport: Any
    """Calls are `transports.TlsTransport.chunk_bytes`, `counted_received`, `counted_sent`, `not_accepted`, `flush_own`,
    `continue_later`. Bytes in `_unsent` must be sent first.
    """
    incoming: Any
    """MemoryBIO with ciphertext of the peer."""
    outgoing: Any
    session: Any
    """Has `read(size, buffer)` and `write(data)` of `ssl.SSLObject`."""


class Pump(Protocol):
    """Faster wait of the loop, which forwards bytes without calling Python where possible (`forwarding.walk.pump`)."""

    def iterate(self, wait_s: float) -> None:
        """Wait for sockets at most `wait_s` seconds and serve them. Returns early once Python code may have left calls.

        Raises OSError if the wait failed, any exception that is not an Exception, and those of `failed` of an owner.
        """

    def connect(self, fd: int, walk: Any, out_fd: int, receives: TlsBuffers | None, sends: TlsBuffers | None) -> None:
        """Walk bytes from `fd` with `walk` and send them to `out_fd`. The caller registers both with the poller.

        `receives`, `sends`: TLS of either socket. None for plain text.
        """

    def send_later(self, fd: int, data: bytes) -> None:
        """Send bytes in the direction of `fd` when all events of this wait are served.

        Dropped if the descriptor is forgotten before. Raises ValueError for an unknown descriptor.
        """

    def forget(self, fd: int) -> None:
        """Remove a descriptor that is about to be closed."""

    def interrupt(self) -> None:
        """Return from `iterate` once the sockets that are ready are served: an alarm is due before its wait ends."""
