"""Map each broker to its address on the proxy, and put that address into responses (forwarding/README.md rules 9 and
10).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from kafka_share_proxy.brokers.cluster_metadata import ClusterMetadata
from kafka_share_proxy.forwarding.dispatch.routes import Context, Rewrite
from kafka_share_proxy.forwarding.rewriting.broker_addresses import PORT_MAX, BrokerAddresses
from kafka_share_proxy.wire.definitions.endpoints import Endpoint
from kafka_share_proxy.wire.values import Address

UNBOUND_MAX = PORT_MAX
"""Maximum number of remembered brokers without a listener."""

RESPONSES_MAX = 4096
"""Maximum number of cached responses."""
RESPONSES_BYTES_MAX = 16 << 20
"""Maximum bytes of all cached responses, original and rewritten form."""
RESPONSE_BYTES_MAX = 256 << 10
"""Maximum bytes of a cached response. Hashing a larger one (0.1 ms) costs more than rewriting it."""


class AddressBook:
    """Two-way map between node ids and addresses of the proxy. `on_new` binds a listener and returns True on success.

    `pinned`: addresses to connect to, instead of the advertised ones. `is_one_port`: see BrokerAddresses.
    """

    def __init__(
        self,
        first_port: int,
        advertised_host: str,
        on_new: Callable[[int, Address], bool],
        pinned: Mapping[int, Address] | None = None,
        *,
        is_one_port: bool = False,
    ) -> None:
        self.generation = 0
        """Grows whenever cached responses become stale."""
        self._on_change: list[Callable[[], None]] = []
        self._addresses = BrokerAddresses(advertised_host, first_port, is_one_port)
        self._on_new = on_new
        self._pinned = dict(pinned or {})
        self._upstream: dict[int, Address] = {}
        self._ours: dict[int, Address] = {}
        self._unbound: dict[int, Address] = {}

    def advertise(self, node_id: int, upstream: Address) -> Address | None:
        """Bind the broker's listener and return its address for clients. None to leave the broker out, until
        `retry_unbound`.
        """
        upstream = self._pinned.get(node_id, upstream)
        if self._upstream.get(node_id) == upstream:
            return self._ours[node_id]
        if self._unbound.get(node_id) == upstream:
            return None
        return self._learn(node_id, upstream)

    def upstream_of(self, node_id: int) -> Address | None:
        return self._upstream.get(node_id)

    def ours_of(self, node_id: int) -> Address | None:
        """Return the broker's address for clients."""
        return self._ours.get(node_id)

    @property
    def nodes(self) -> Mapping[int, Address]:
        return self._upstream

    @property
    def unbound(self) -> Mapping[int, Address]:
        """Brokers that are left out."""
        return self._unbound

    def retry_unbound(self) -> None:
        """Retry the failed listeners with the next response. To be called periodically."""
        if self._unbound:
            self._unbound.clear()
            self._changed()

    def forget(self, node_id: int) -> None:
        upstream = self._upstream.pop(node_id, None) or self._unbound.pop(node_id, None)
        self._ours.pop(node_id, None)
        if upstream is not None:
            self._changed()

    def address_for(self, node_id: int) -> Address | None:
        """Return the address of a broker for clients, or None if its port would be out of range."""
        return self._addresses.of(node_id)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Register a callback that runs first whenever `generation` grows."""
        self._on_change.append(callback)

    def _changed(self) -> None:
        self.generation += 1
        for callback in self._on_change:
            callback()

    def _learn(self, node_id: int, upstream: Address) -> Address | None:
        advertised = self.address_for(node_id)
        self._changed()
        if advertised is None or not self._on_new(node_id, upstream):
            if len(self._unbound) < UNBOUND_MAX:
                self._unbound[node_id] = upstream
            self._upstream.pop(node_id, None)
            self._ours.pop(node_id, None)
            return None
        self._unbound.pop(node_id, None)
        self._upstream[node_id], self._ours[node_id] = upstream, advertised
        return advertised


def placed(endpoints: Iterable[Endpoint], book: AddressBook) -> list[tuple[Endpoint, Address]] | None:
    """Return the proxy's address for every endpoint with a host. None if a broker has to be left out."""
    pairs = []
    for endpoint in endpoints:
        if not endpoint.host:
            continue
        advertised = book.advertise(endpoint.node_id, Address(endpoint.host, endpoint.port))
        if advertised is None:
            return None
        pairs.append((endpoint, advertised))
    return pairs


E = TypeVar("E", covariant=True)


class MakesEndpoint(Protocol[E]):
    """Class of the NodeEndpoints of one response."""

    def __call__(self, *, node_id: int, host: str, port: int, rack: str | None) -> E: ...


def node_endpoints(
    book: AddressBook, topology: ClusterMetadata, entry: MakesEndpoint[E], node_ids: Iterable[int]
) -> list[E]:
    """Return the NodeEndpoints (KIP-951), of class `entry`, of each given broker that has an address here."""
    entries = []
    for node_id in sorted(set(node_ids)):
        broker = topology.brokers.get(node_id)
        address = book.advertise(node_id, broker.address) if broker is not None else None
        if broker is not None and address is not None:
            entries.append(entry(node_id=node_id, host=address.host, port=address.port, rack=broker.rack))
    return entries


class Remembered:
    """Rewriter with a cache, keyed by the bytes of a response after its correlation id."""

    __slots__ = ("_cache", "_rewrite", "known")

    def __init__(self, cache: ResponseCache, rewrite: Rewrite) -> None:
        self._cache, self._rewrite = cache, rewrite
        self.known: dict[bytes, tuple[bytes, bytes]] = {}
        """Bytes after the correlation id -> (new size prefix, new bytes), both empty to leave the response unchanged.

        `forwarding.walk._walk` reads this dict, so stale entries must be removed immediately.
        """

    def __call__(self, frame: memoryview, context: Context) -> bytes | None:
        if len(frame) > RESPONSE_BYTES_MAX:
            return self._rewrite(frame, context)
        body = bytes(frame[4:])
        cached = self.known.get(body)
        if cached is None:
            rewritten = self._rewrite(frame, context)
            self._cache.keep(self, body, rewritten)
            return rewritten
        size, rest = cached
        return b"".join((size, frame[:4], rest)) if size else None


class ResponseCache:
    """Cache of rewritten responses by the broker's bytes."""

    def __init__(
        self, book: AddressBook, responses_max: int = RESPONSES_MAX, bytes_max: int = RESPONSES_BYTES_MAX
    ) -> None:
        self._responses_max, self._bytes_max = responses_max, bytes_max
        self._bytes = 0
        self._entries: deque[tuple[Remembered, bytes]] = deque()
        book.on_change(self._forget_all)

    def __len__(self) -> int:
        return len(self._entries)

    def through(self, rewrite: Rewrite) -> Remembered:
        """Add a cache. All rewriters of one ResponseCache share its limits."""
        return Remembered(self, rewrite)

    def keep(self, rewriter: Remembered, body: bytes, rewritten: bytes | None) -> None:
        entry = (rewritten[:4], rewritten[8:]) if rewritten is not None else (b"", b"")
        if body not in rewriter.known:
            rewriter.known[body] = entry
            self._entries.append((rewriter, body))
            self._bytes += len(body) + len(entry[1])
        while len(self._entries) > self._responses_max or self._bytes > self._bytes_max:
            oldest, evicted_body = self._entries.popleft()
            self._bytes -= len(evicted_body) + len(oldest.known.pop(evicted_body)[1])

    def _forget_all(self) -> None:
        for rewriter, _ in self._entries:
            rewriter.known.clear()
        self._entries.clear()
        self._bytes = 0
