"""TLS handshakes of peers that connect to this proxy: limits, order and deadline (loop/README.md rules 18 and 19)."""

from __future__ import annotations

import socket
import ssl
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafka_share_proxy.loop import faults
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.polling import ERROR, HANGUP, PEER_LEFT, READ, WRITE
from kafka_share_proxy.loop.reactor import Reactor, ReactorTimer
from kafka_share_proxy.loop.server_names import ServerNames
from kafka_share_proxy.loop.tls_context import TlsContext
from kafka_share_proxy.loop.tls_memory import TlsMemory
from kafka_share_proxy.loop.transports import LEFT_IN_HANDSHAKE, TOO_SLOW, PlainTransport, TlsTransport

SWEEP_S = 0.5
RECORD_HEADER = 5
"""Bytes of a record header: content type (22: handshake), version (major 3), length (RFC 8446, 5.1)."""
RECORD_BYTES = 16 * 1024
"""Maximum bytes of a plaintext record."""
HANDSHAKE_RECORD, MAJOR_VERSION = 22, 3

_FIRST_RECORD = memoryview(bytearray(RECORD_HEADER + RECORD_BYTES))


class HandshakeLimits(NamedTuple):
    """Limits of unfinished handshakes, with the names for log lines."""

    total: int
    per_address: int
    timeout_s: float
    """Seconds for the peer, without the time in the queue here."""
    total_name: str = "limits.tls_handshakes"
    per_address_name: str = "limits.tls_handshakes_per_address"


class Handshakes:
    """Unfinished handshakes of one kind of peers."""

    def __init__(
        self,
        reactor: Reactor,
        context: TlsContext,
        limits: HandshakeLimits,
        notes: Notes,
        memory: TlsMemory | None = None,
        names: ServerNames | None = None,
    ) -> None:
        """`memory`: account of these connections, including established ones. None: no limit.

        `names`: names that clients may request. None: any, or none.
        """
        self.memory = TlsMemory() if memory is None else memory
        self.reactor = reactor
        self._context = context
        self._names = names
        self.limits = limits
        self._notes = notes
        self._sources: dict[str, _Source] = {}
        self._queued_sources: deque[_Source] = deque()
        self._is_planned = False
        self._sweeping: ReactorTimer | None = None
        self.pending = 0
        """Number of unfinished handshakes."""
        self.refused = 0
        """Number of handshakes that a limit refused or ended."""

    def of(self, host: str) -> int:
        """Return the number of unfinished handshakes of an address."""
        source = self._sources.get(host)
        return 0 if source is None else len(source)

    def begin(
        self,
        sock: socket.socket,
        host: str,
        done: Callable[[TlsTransport], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Begin the handshake on an accepted socket.

        `done` is called with the transport of a finished handshake, `failed` with the reason otherwise. Neither is
        called after `close`, or if a limit ends the handshake, which is counted and noted here.
        """
        if not self._make_room(host):
            sock.close()
            return
        source = self._sources.get(host)
        if source is None:
            source = self._sources[host] = _Source(host)
        handshake = _Handshake(self, source, PlainTransport(self.reactor, sock), done, failed)
        source.waiting[handshake] = None
        self.pending += 1
        if self._sweeping is None:
            self._sweeping = self.reactor.call_at(self.reactor.now() + SWEEP_S, self._sweep)
        handshake.watch()

    def close(self) -> None:
        for handshake in [each for source in self._sources.values() for each in source]:
            self.remove(handshake)
            handshake.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    def failed(self, error: Exception) -> None:
        """Log an internal error outside of a single handshake (see faults.FaultOwner). All handshakes continue."""
        self._notes("callback-failed", error=error)

    # for handshakes

    def context(self) -> ssl.SSLContext:
        context = self._context.current
        if self._names is not None:
            self._names.require(context)
        return context

    def queue(self, handshake: _Handshake) -> None:
        source = handshake.source
        if not source.queued:
            self._queued_sources.append(source)
        del source.waiting[handshake]
        source.queued[handshake] = None
        self._plan()

    def remove(self, handshake: _Handshake) -> None:
        source = handshake.source
        source.waiting.pop(handshake, None)
        source.queued.pop(handshake, None)
        self.pending -= 1
        if not len(source):
            del self._sources[source.host]

    def _plan(self) -> None:
        if self._queued_sources and not self._is_planned:
            self._is_planned = True
            self.reactor.call_soon(self, self._next)

    def _next(self) -> None:
        self._is_planned = False
        while self._queued_sources:
            source = self._queued_sources.popleft()
            if not source.queued:
                continue  # these peers have left
            handshake = next(iter(source.queued))
            del source.queued[handshake]
            source.waiting[handshake] = None
            if source.queued:
                self._queued_sources.append(source)
            faults.guard(handshake, handshake.start)
            break
        self._plan()

    def _make_room(self, host: str) -> bool:
        """Return True if this address may begin one more handshake, after ending another one if necessary."""
        limits, own = self.limits, self._sources.get(host)
        if not self.memory.has_room:
            self.refused += 1
            reason = f"limits.tls_total_bytes ({self.memory.limit:.0f}) are in use"
            self._notes("tls-handshake-limit", client=host, reason=reason)
            return False
        if own is not None and len(own) >= limits.per_address:
            crowded, limit = own, f"{limits.per_address_name} ({limits.per_address})"
        elif self.pending < limits.total:
            return True
        else:
            crowded, limit = self._busiest(own), f"{limits.total_name} ({limits.total})"
        self.refused += 1
        self._notes("tls-handshake-limit", client=crowded.host, reason=f"{limit} is reached")
        ended = crowded.longest_waiting()
        if ended is None and crowded is not own:
            ended = next(reversed(crowded.queued), None)
        if ended is None:
            return False
        self.remove(ended)
        ended.close()
        return True

    def _busiest(self, own: _Source | None) -> _Source:
        """Return a source with the most handshakes: `own` if it is one of them."""
        most = max(len(source) for source in self._sources.values())
        if own is not None and len(own) == most:
            return own
        return next(source for source in self._sources.values() if len(source) == most)

    def _sweep(self) -> None:
        now = self.reactor.now()
        waiting = [each for source in self._sources.values() for each in source.waiting]
        for handshake in waiting:
            if handshake.deadline <= now and handshake.waits_for_peer:
                handshake.failed(TimeoutError(TOO_SLOW))
        self._sweeping = self.reactor.call_at(now + SWEEP_S, self._sweep) if self.pending else None


class _Source:
    """Unfinished handshakes of one address."""

    __slots__ = ("host", "queued", "waiting")

    def __init__(self, host: str) -> None:
        self.host = host
        self.waiting: dict[_Handshake, None] = {}
        """Handshakes that wait for the peer, ordered by their last progress."""
        self.queued: dict[_Handshake, None] = {}
        """Handshakes that wait for their next step here."""

    def __len__(self) -> int:
        return len(self.waiting) + len(self.queued)

    def __iter__(self) -> Iterator[_Handshake]:
        yield from self.waiting
        yield from self.queued

    def longest_waiting(self) -> _Handshake | None:
        return next((handshake for handshake in self.waiting if handshake.waits_for_peer), None)


class _Handshake:
    """Unfinished handshake. It owns its socket in the sense of `faults`."""

    __slots__ = (
        "_done",
        "_expected",
        "_failed",
        "_handshakes",
        "_is_over",
        "_plain",
        "_queued_at",
        "_transport",
        "deadline",
        "source",
    )

    def __init__(
        self,
        handshakes: Handshakes,
        source: _Source,
        plain: PlainTransport,
        done: Callable[[TlsTransport], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.source = source
        self.deadline = handshakes.reactor.now() + handshakes.limits.timeout_s
        self._handshakes = handshakes
        self._plain = plain
        self._transport: TlsTransport | None = None
        self._done = done
        self._failed = failed
        self._expected = 0
        self._queued_at = 0.0
        self._is_over = False

    @property
    def waits_for_peer(self) -> bool:
        return self._transport is None or self._transport.waits_for_peer

    def describe(self) -> dict[str, object]:
        return {"client": self.source.host}

    def watch(self) -> None:
        self._plain.attach(self._on_bytes, READ | PEER_LEFT)

    def start(self) -> None:
        handshakes = self._handshakes
        self.deadline += handshakes.reactor.now() - self._queued_at
        self._plain.want(0)
        self._transport = transport = TlsTransport(
            handshakes.reactor,
            self._plain,
            handshakes.context(),
            server_side=True,
            server_hostname=None,
            handshake_timeout_s=None,
            memory=handshakes.memory,
        )
        transport.attach(self._on_transport, WRITE)
        transport.proceed()

    def failed(self, error: Exception) -> None:
        if self._is_over:  # the receiver of the transport raised
            self.close()
            self._handshakes.failed(error)
            return
        self._handshakes.remove(self)
        self.close()
        self._failed(error)

    def close(self) -> None:
        self._is_over = True
        (self._transport or self._plain).close()

    def _on_bytes(self, mask: int) -> None:
        if mask & (PEER_LEFT | ERROR | HANGUP):
            raise ConnectionResetError(LEFT_IN_HANDSHAKE)
        if not self._expected and sys.platform == "linux" and not self._is_whole():
            return
        self._plain.wait_for(1)
        self._plain.want(PEER_LEFT)
        self._queued_at = self._handshakes.reactor.now()
        self._handshakes.queue(self)

    def _is_whole(self) -> bool:
        """Return True if the first record is complete, or is no handshake record, which OpenSSL then reports.

        The kernel reports an incomplete one once it is complete.
        """
        received = self._plain.peek(_FIRST_RECORD)
        if not received:
            raise ConnectionResetError(LEFT_IN_HANDSHAKE)
        expected = RECORD_HEADER
        if received >= RECORD_HEADER:
            if (_FIRST_RECORD[0], _FIRST_RECORD[1]) != (HANDSHAKE_RECORD, MAJOR_VERSION):
                return True
            expected += int.from_bytes(_FIRST_RECORD[3:RECORD_HEADER], "big")
            if received >= min(expected, len(_FIRST_RECORD)):
                return True
            self._expected = expected
        elif _FIRST_RECORD[0] != HANDSHAKE_RECORD:
            return True
        self._plain.wait_for(expected)
        return False

    def _on_transport(self, mask: int) -> None:
        transport = self._transport
        assert transport is not None  # noqa: S101  # only it calls this
        if mask & WRITE:
            self._is_over = True
            self._handshakes.remove(self)
            self._done(transport)
