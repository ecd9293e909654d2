"""Answers of brokers, changed in one point: an address of the upstream cluster becomes the proxy's own.

Theory of operation. `wire.endpoints` says where an answer carries host and port. Where every broker it names has a
listener here, the new bytes are spliced between the old ones, which stay as they are. The rare rest - a broker that
has to be left out, a list whose length stands in a tag, something to hide - goes through the codec, which keeps
unknown tags; what is then done is the matter of the API's own file. `table.REPAIRS` says which file that is; a carrier
in the message definitions that is neither there nor waived keeps the proxy from starting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from proxy.forwarding.address_book import AddressBook, placed
from proxy.forwarding.routes import Context, Rewrite
from proxy.wire import endpoints, headers, registry
from proxy.wire.errors import AnswerUnusable, LocalProtocolError
from proxy.wire.values import Address

Repair = Callable[[Any, AddressBook], None]
"""Decoded answer, changed in place: every address becomes ours, and what has none is left out.

Raises AnswerUnusable where that would leave a client without any broker.
"""

Special = Callable[[memoryview, Sequence[endpoints.Endpoint]], bool]
"""Response frame and the endpoints in it -> whether it has to go through the codec although all have a place here."""


class HasAddress(Protocol):
    """An entry of an answer that says where a broker is dialled."""

    host: str
    port: int


E = TypeVar("E", bound=HasAddress)


class HasNodeEndpoints(Protocol[E]):
    """An answer that names new leaders (KIP-951)."""

    node_endpoints: list[E]


def rewriter(key: int, version: int, book: AddressBook, repair: Repair, special: Special | None = None) -> Rewrite:
    """The rewriter of one (API key, version) whose answers carry addresses; uncached.

    Raises:
        LocalProtocolError: they carry none.
    """
    locate = endpoints.locator(key, version)
    if locate is None:
        raise LocalProtocolError(f"{registry.API_KEYS[key]} v{version} carries no address")

    def rewrite(frame: memoryview, _: Context) -> bytes | None:
        found = locate(frame, headers.response_body_offset(key, version, frame))
        if not found and special is None:
            return None
        replacements = placed(found, book)
        if replacements is None or (special is not None and special(frame, found)):
            return repaired(frame, key, version, book, repair)
        if not replacements:
            return None
        changes = [(endpoint, endpoints.encode(key, version, *address)) for endpoint, address in replacements]
        return sized(endpoints.splice(frame, changes))

    return rewrite


class ProduceRewriter:
    """The rewriter of answers to Produce from v10 on, which nearly never carry addresses.

    The walk in C lets those pass that it sees to be plain; `produce_version` tells it their layout.
    """

    __slots__ = ("_rewrite", "produce_version")

    def __init__(self, rewrite: Rewrite, version: int) -> None:
        self._rewrite = rewrite
        self.produce_version = version

    def __call__(self, frame: memoryview, context: Context) -> bytes | None:
        """See `routes.Rewrite`."""
        return self._rewrite(frame, context)


def repaired(frame: memoryview, key: int, version: int, book: AddressBook, repair: Repair) -> bytes:
    """The long way round: decode, repair, encode. Gives the whole frame with size; the header stays as it is."""
    body = headers.response_body_offset(key, version, frame)
    codec = registry.response(key, version)
    answer = codec.decode(frame, body)
    repair(answer, book)
    parts: list[Any] = [frame[:body]]
    codec.encode_into(answer, parts)
    return sized(*parts)


def sized(*parts: Any) -> bytes:
    """A frame out of its parts, with its size in front."""
    return b"".join((sum(map(len, parts)).to_bytes(4, "big"), *parts))


def ours(entries: Iterable[E] | None, book: AddressBook, node_id: str = "node_id") -> list[E]:
    """The entries of a list of brokers, with our addresses; those without one are left out."""
    return [entry for entry in entries or () if has_place(entry, book, node_id)]


def has_place(entry: HasAddress, book: AddressBook, node_id: str = "node_id") -> bool:
    """Give one entry our address; False when its broker cannot have one. An empty host is no address and stays."""
    if not entry.host:
        return True
    address = book.advertise(getattr(entry, node_id), Address(entry.host, entry.port))
    if address is None:
        return False
    entry.host, entry.port = address
    return True


def unusable(api: str) -> AnswerUnusable:
    """None of the brokers an answer names has a listener here: better no answer than one without brokers.

    librdkafka does not recover from an answer with topics and no brokers (its issue 5301); a closed connection makes
    every client try again.
    """
    return AnswerUnusable(f"{api}: no broker that upstream names can have a listener here")


def drop_node_endpoints(answer: HasNodeEndpoints[E], book: AddressBook) -> None:
    """NodeEndpoints (KIP-951) of Produce v10+, ShareFetch and ShareAcknowledge: who cannot be dialled is not named.

    The client then asks for Metadata, as it does when the broker does not know the new leader.
    """
    answer.node_endpoints = ours(answer.node_endpoints, book)
