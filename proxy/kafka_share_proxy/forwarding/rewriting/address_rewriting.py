"""Replace addresses of the upstream cluster in broker responses by addresses of the proxy.

`wire.definitions.endpoints` finds the addresses. If every broker has a listener here, the new bytes are spliced between
the old ones. The rare other cases (a broker to leave out, a list whose length is stored in a tag, something to hide) go
through the codec, which keeps unknown tags, and the API's own file in `apis/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from kafka_share_proxy.forwarding.dispatch.routes import Context, Rewrite
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook, placed
from kafka_share_proxy.wire.codec import headers
from kafka_share_proxy.wire.definitions import endpoints, registry
from kafka_share_proxy.wire.errors import LocalProtocolError, UnusableResponse
from kafka_share_proxy.wire.values import Address

Repair = Callable[[Any, AddressBook], None]
"""Replaces every address in a decoded response and removes brokers without one.

Raises UnusableResponse if that would leave a client without any broker.
"""

Special = Callable[[memoryview, Sequence[endpoints.Endpoint]], bool]
"""True if the codec is needed for a response frame even with all brokers known here."""


class HasAddress(Protocol):
    """Entry of a response that contains the address of a broker."""

    host: str
    port: int


E = TypeVar("E", bound=HasAddress)


class HasNodeEndpoints(Protocol[E]):
    """Response that can name new leaders (KIP-951)."""

    node_endpoints: list[E]


def rewriter(key: int, version: int, book: AddressBook, repair: Repair, special: Special | None = None) -> Rewrite:
    """Raises LocalProtocolError if the responses of this version carry no addresses."""
    locate = endpoints.locator(key, version)
    if locate is None:
        raise LocalProtocolError(f"{registry.API_KEYS[key]} v{version} carries no address")

    def rewrite(frame: memoryview, _: Context) -> bytes | None:
        located = locate(frame, headers.response_body_offset(key, version, frame))
        if not located and special is None:
            return None
        replacements = placed(located, book)
        if replacements is None or (special is not None and special(frame, located)):
            return repaired(frame, key, version, book, repair)
        if not replacements:
            return None
        changes = [(endpoint, endpoints.encode(key, version, *address)) for endpoint, address in replacements]
        return sized(endpoints.splice(frame, changes))

    return rewrite


class ProduceRewriter:
    """Rewriter of Produce responses from v10 on, which almost never carry addresses.

    The walk in C forwards those without, by the layout of `produce_version`.
    """

    __slots__ = ("_rewrite", "produce_version")

    def __init__(self, rewrite: Rewrite, version: int) -> None:
        self._rewrite = rewrite
        self.produce_version = version

    def __call__(self, frame: memoryview, context: Context) -> bytes | None:
        return self._rewrite(frame, context)


def repaired(frame: memoryview, key: int, version: int, book: AddressBook, repair: Repair) -> bytes:
    """Return the whole frame with its size and an unchanged header."""
    body = headers.response_body_offset(key, version, frame)
    codec = registry.response(key, version)
    response = codec.decode(frame, body)
    repair(response, book)
    parts: list[Any] = [frame[:body]]
    codec.encode_into(response, parts)
    return sized(*parts)


def sized(*parts: Any) -> bytes:
    return b"".join((sum(map(len, parts)).to_bytes(4, "big"), *parts))


def reachable(entries: Iterable[E] | None, book: AddressBook, node_id: str = "node_id") -> list[E]:
    """Return the entries of brokers with a listener here, with its address instead of the broker's."""
    return [entry for entry in entries or () if replace_address(entry, book, node_id)]


def replace_address(entry: HasAddress, book: AddressBook, node_id: str = "node_id") -> bool:
    """Replace the address in one entry. Return False if its broker has no listener here. An empty host stays."""
    if not entry.host:
        return True
    address = book.advertise(getattr(entry, node_id), Address(entry.host, entry.port))
    if address is None:
        return False
    entry.host, entry.port = address
    return True


def unusable(api: str) -> UnusableResponse:
    """Return the error for a response in which no broker has a listener here.

    librdkafka does not recover from a response with topics and no brokers (its issue 5301).
    """
    return UnusableResponse(f"{api}: no broker that upstream names can have a listener here")


def drop_node_endpoints(response: HasNodeEndpoints[E], book: AddressBook) -> None:
    """Remove unreachable brokers from NodeEndpoints (KIP-951) of Produce v10+, ShareFetch and ShareAcknowledge.

    The client then sends a Metadata request.
    """
    response.node_endpoints = reachable(response.node_endpoints, book)
