"""Connections of load balancers that begin with a PROXY protocol header (loop/README.md rules 25 and 26)."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence

from kafka_share_proxy.loop import faults
from kafka_share_proxy.loop.polling import READ
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.wire import proxy_header
from kafka_share_proxy.wire.errors import ProxyHeaderRefused

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Accepted = Callable[[socket.socket, str], None]
"""Receiver of a socket and of the address of its client."""
Failed = Callable[[Exception], None]

LEFT = "the peer left before the end of its PROXY protocol header"


def is_among(networks: Sequence[Network], host: str) -> bool:
    address = ipaddress.ip_address(host)
    return any(address in network for network in networks)


def with_advice(error: ProxyHeaderRefused, host: str, setting: str) -> str:
    """Return the reason, and what to do about it."""
    return f"{error}: let the load balancer send version 2 (HAProxy: send-proxy-v2), or take {host} out of {setting}"


class ProxyHeaders:
    """Connections whose header is not complete."""

    def __init__(self, reactor: Reactor, sources: Sequence[Network], timeout_s: float, setting: str) -> None:
        """`sources`: networks of the load balancers. `setting`: their name, for log lines."""
        self.reactor = reactor
        self.timeout_s = timeout_s
        self.setting = setting
        self._sources = sources
        self._unread: dict[_UnreadHeader, None] = {}

    @property
    def pending(self) -> int:
        """Number of connections without a complete header."""
        return len(self._unread)

    def expects(self, host: str) -> bool:
        """Return True if connections of this address begin with a header."""
        return is_among(self._sources, host)

    def begin(self, sock: socket.socket, host: str, accepted: Accepted, failed: Failed) -> None:
        """Read the header. Then call `accepted`, or `failed` with the reason, unless `close` ends it."""
        sock.setblocking(False)
        header = _UnreadHeader(self, sock, host, accepted, failed)
        self._unread[header] = None
        faults.guard(header, header.begin)

    def close(self) -> None:
        for header in list(self._unread):
            header.leave()
            self.reactor.close(header.sock)

    def remove(self, header: _UnreadHeader) -> None:
        del self._unread[header]


class _UnreadHeader:
    """Connection until its header is complete. It owns its socket in the sense of `faults`."""

    __slots__ = ("_accepted", "_alarm", "_failed", "_header", "_headers", "_host", "_is_over", "_watches", "sock")

    def __init__(
        self, headers: ProxyHeaders, sock: socket.socket, host: str, accepted: Accepted, failed: Failed
    ) -> None:
        self.sock = sock
        self._headers = headers
        self._host = host
        self._accepted = accepted
        self._failed = failed
        self._header = b""
        self._watches = self._is_over = False
        self._alarm = headers.reactor.call_at(headers.reactor.now() + headers.timeout_s, self._too_slow)

    def describe(self) -> dict[str, object]:
        return {"client": self._host}

    def begin(self) -> None:
        self._read()
        if not self._is_over:
            self._headers.reactor.register(self.sock.fileno(), READ, self._ready)
            self._watches = True

    def leave(self) -> None:
        """Stop reading. The caller closes or uses the socket."""
        self._is_over = True
        self._alarm.cancel()
        if self._watches:
            self._watches = False
            self._headers.reactor.unregister(self.sock.fileno())
        self._headers.remove(self)

    def failed(self, error: Exception) -> None:
        if isinstance(error, ProxyHeaderRefused):
            error = ProxyHeaderRefused(with_advice(error, self._host, self._headers.setting))
        if not self._is_over:
            self.leave()
            self._headers.reactor.close(self.sock)
        self._failed(error)

    def _ready(self, _mask: int) -> None:
        self._read()

    def _read(self) -> None:
        """Read no byte after the header: they belong to TLS or to Kafka."""
        try:
            while (missing := proxy_header.length(self._header) - len(self._header)) > 0:
                received = self.sock.recv(missing)
                if not received:
                    raise ConnectionResetError(LEFT)
                self._header += received
        except BlockingIOError:
            return
        client = proxy_header.client_of(self._header)
        self.leave()
        self._accepted(self.sock, client or self._host)

    def _too_slow(self) -> None:
        self.failed(ProxyHeaderRefused(f"no PROXY protocol header within {self._headers.timeout_s:g} s"))
