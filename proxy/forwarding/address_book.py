"""Which address of ours stands for which broker, and putting it into answers.

Theory of operation. Broker N is reached at port `first_port + N` of the proxy, the same after a restart and on every
replica. An answer that names a broker goes on only after `advertise` gave its address here, and `advertise` gives one
only after the listener is bound: a client can always dial what it was told. A broker whose listener cannot be bound is
left out of the answer, never shown with its upstream address. Which fields of which answers carry addresses is found
from the message definitions (`wire.endpoints`); the bytes between them are copied as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from proxy.brokers.cluster_view import ClusterView
from proxy.forwarding.routes import Context, Rewrite
from proxy.wire.endpoints import Endpoint
from proxy.wire.values import Address

PORT_MAX = 65535

UNBOUND_MAX = PORT_MAX
"""Brokers without a listener that are remembered; one more is tried again with every answer."""

ANSWERS_MAX = 4096
"""Rewritten answers kept."""
ANSWERS_BYTES_MAX = 16 << 20
"""All of them together, question and result."""
ANSWER_BYTES_MAX = 256 << 10
"""A larger answer is not kept: hashing it (0.1 ms) costs more than rewriting it, unless it names dozens of brokers."""


class AddressBook:
    """Node id <-> address of the proxy. `on_new` binds the listener and says whether it could.

    Brokers in `pinned` are dialled at the address given there, whatever they advertise.
    """

    def __init__(
        self,
        first_port: int,
        advertised_host: str,
        on_new: Callable[[int, Address], bool],
        pinned: Mapping[int, Address] | None = None,
    ) -> None:
        self.generation = 0
        """Grows whenever an answer rewritten before might now be rewritten differently."""
        self._on_change: list[Callable[[], None]] = []
        self._first_port = first_port
        self._host = advertised_host
        self._on_new = on_new
        self._pinned = dict(pinned or {})
        self._upstream: dict[int, Address] = {}
        self._ours: dict[int, Address] = {}
        self._unbound: dict[int, Address] = {}

    def advertise(self, node_id: int, upstream: Address) -> Address | None:
        """The address to tell clients for this broker; its listener is bound when this returns.

        None = leave that broker out: there is no port for it or the listener could not be bound. That is tried once
        for each upstream address, and again after `retry_unbound`.
        """
        upstream = self._pinned.get(node_id, upstream)
        if self._upstream.get(node_id) == upstream:
            return self._ours[node_id]
        if self._unbound.get(node_id) == upstream:
            return None
        return self._learn(node_id, upstream)

    def upstream_of(self, node_id: int) -> Address | None:
        """Where the broker itself listens."""
        return self._upstream.get(node_id)

    def ours_of(self, node_id: int) -> Address | None:
        """What clients are told for the broker."""
        return self._ours.get(node_id)

    @property
    def nodes(self) -> Mapping[int, Address]:
        """Node id -> upstream address, of all brokers with a listener here."""
        return self._upstream

    @property
    def unbound(self) -> Mapping[int, Address]:
        """Node id -> upstream address, of the brokers that are left out."""
        return self._unbound

    def retry_unbound(self) -> None:
        """Let the next answer try again to bind what could not be bound: to be called now and then."""
        if self._unbound:
            self._unbound.clear()
            self._changed()

    def forget(self, node_id: int) -> None:
        """A broker has been gone for the grace time and its listener is closed; harmless when it is not known."""
        known = self._upstream.pop(node_id, None) or self._unbound.pop(node_id, None)
        self._ours.pop(node_id, None)
        if known is not None:
            self._changed()

    def address_for(self, node_id: int) -> Address | None:
        """The address a broker has here by the rule, bound or not; None where the port would be no port."""
        port = self._first_port + node_id
        return Address(self._host, port) if node_id >= 0 and port <= PORT_MAX else None

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call whenever `generation` grows, before anything else happens."""
        self._on_change.append(callback)

    def _changed(self) -> None:
        self.generation += 1
        for callback in self._on_change:
            callback()

    def _learn(self, node_id: int, upstream: Address) -> Address | None:
        """First sight of the broker, or its address upstream changed."""
        ours = self.address_for(node_id)
        self._changed()
        if ours is None or not self._on_new(node_id, upstream):
            if len(self._unbound) < UNBOUND_MAX:
                self._unbound[node_id] = upstream
            self._upstream.pop(node_id, None)
            self._ours.pop(node_id, None)
            return None
        self._unbound.pop(node_id, None)
        self._upstream[node_id], self._ours[node_id] = upstream, ours
        return ours


def placed(found: Iterable[Endpoint], book: AddressBook) -> list[tuple[Endpoint, Address]] | None:
    """Our address for every endpoint of an answer that has one; None when a broker has to be left out.

    An empty host is no address ("no coordinator", node -1): it stays as it is.
    """
    pairs = []
    for endpoint in found:
        if not endpoint.host:
            continue
        ours = book.advertise(endpoint.node_id, Address(endpoint.host, endpoint.port))
        if ours is None:
            return None
        pairs.append((endpoint, ours))
    return pairs


E = TypeVar("E", covariant=True)


class MakesEndpoint(Protocol[E]):
    """The class of the NodeEndpoints of one response."""

    def __call__(self, *, node_id: int, host: str, port: int, rack: str | None) -> E:
        """Make the entry of one node."""


def node_endpoints(
    book: AddressBook, topology: ClusterView, entry: MakesEndpoint[E], node_ids: Iterable[int]
) -> list[E]:
    """NodeEndpoints (KIP-951) of a response: the proxy's own address of each of these brokers that has one.

    Args:
        book: our addresses.
        topology: the brokers, as they told of themselves.
        entry: the class of what the response lists.
        node_ids: the brokers to be named, each once.
    """
    found = []
    for node_id in sorted(set(node_ids)):
        broker = topology.brokers.get(node_id)
        address = book.advertise(node_id, broker.address) if broker is not None else None
        if broker is not None and address is not None:
            found.append(entry(node_id=node_id, host=address.host, port=address.port, rack=broker.rack))
    return found


class Remembered:
    """A rewriter that is asked only for answers whose bytes after the correlation id are new."""

    __slots__ = ("_cache", "_rewrite", "known")

    def __init__(self, cache: AnswerCache, rewrite: Rewrite) -> None:
        self._cache, self._rewrite = cache, rewrite
        self.known: dict[bytes, tuple[bytes, bytes]] = {}
        """What follows the correlation id -> size prefix and what follows it then; two empty strings: unchanged.

        The data plane looks in here itself (`forwarding._walk`), so it holds nothing that is not true any more.
        """

    def __call__(self, frame: memoryview, context: Context) -> bytes | None:
        """See `routes.Rewrite`."""
        if len(frame) > ANSWER_BYTES_MAX:
            return self._rewrite(frame, context)
        body = bytes(frame[4:])
        kept = self.known.get(body)
        if kept is None:
            rewritten = self._rewrite(frame, context)
            self._cache.keep(self, body, rewritten)
            return rewritten
        size, rest = kept
        return b"".join((size, frame[:4], rest)) if size else None


class AnswerCache:
    """Rewritten answers by the bytes of the broker's answer; those kept longest go first.

    All are forgotten when the address book has changed.
    """

    def __init__(self, book: AddressBook, answers_max: int = ANSWERS_MAX, bytes_max: int = ANSWERS_BYTES_MAX) -> None:
        self._answers_max, self._bytes_max = answers_max, bytes_max
        self._bytes = 0
        self._kept: deque[tuple[Remembered, bytes]] = deque()
        book.on_change(self._forget_all)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def bytes_held(self) -> int:
        """Of all answers kept, before and after."""
        return self._bytes

    def through(self, rewrite: Rewrite) -> Remembered:
        """The same rewriter with a memory; all memories of a cache share its limits."""
        return Remembered(self, rewrite)

    def keep(self, asked: Remembered, body: bytes, rewritten: bytes | None) -> None:
        """Remember what became of an answer, as far as there is room."""
        kept = (rewritten[:4], rewritten[8:]) if rewritten is not None else (b"", b"")
        if body not in asked.known:
            asked.known[body] = kept
            self._kept.append((asked, body))
            self._bytes += len(body) + len(kept[1])
        while len(self._kept) > self._answers_max or self._bytes > self._bytes_max:
            oldest, gone = self._kept.popleft()
            self._bytes -= len(gone) + len(oldest.known.pop(gone)[1])

    def _forget_all(self) -> None:
        for asked, _ in self._kept:
            asked.known.clear()
        self._kept.clear()
        self._bytes = 0
