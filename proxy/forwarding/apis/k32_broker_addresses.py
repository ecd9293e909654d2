"""Addresses in the settings of brokers, as DescribeConfigs shows them: none of the upstream cluster goes to a client.

- `listeners` and `advertised.listeners` keep the names of the listeners; each that names a host gets the one address
  that stands for the broker here. One without a host (Kafka's default) names nobody and stays.
- `controller.quorum.voters`, `controller.quorum.bootstrap.servers` and `zookeeper.connect` name machines that have no
  address here, so their values are withheld, in the way a broker withholds a password: null, and marked as sensitive.
  So is a list of listeners of a broker without an address here, or one that cannot be read.
- The same for the synonyms of an entry. An empty value stays, and every other setting passes as it is.

Requests that change settings are forwarded as they are: what a client sets is what the broker gets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

from proxy.forwarding.address_book import AddressBook
from proxy.forwarding.address_rewriting import repaired
from proxy.forwarding.forwarded_api import ForwardedApi
from proxy.forwarding.routes import Context, Rewrite
from proxy.wire import headers, messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import AnswerUnusable, RemoteProtocolError
from proxy.wire.primitives import read_uvarint
from proxy.wire.values import Address

_Setting: TypeAlias = "messages.DescribeConfigsResponse.DescribeConfigsResourceResult"
_Synonym: TypeAlias = "messages.DescribeConfigsResponse.DescribeConfigsSynonym"

BROKER = 4
"""Resource type (ConfigResource.Type)."""

LISTENERS = frozenset({"listeners", "advertised.listeners"})
WITHHELD = frozenset({"controller.quorum.voters", "controller.quorum.bootstrap.servers", "zookeeper.connect"})

REWRITTEN_BYTES_MAX = 256 << 10
"""Largest answer with addresses in it: it is decoded, at most 16 ms. All settings of a broker take about 110 kB."""

_LISTENER = re.compile(r"\s*([^:/,\s]+)://(\[[^\]]*\]|[^:/\[\]]*):(-?\d+)\s*")
"""NAME://host:port (kafka.cluster.EndPoint)."""


def rewriter(version: int, book: AddressBook) -> Rewrite:
    """The rewriter of answers to DescribeConfigs of this version."""
    flexible = headers.response_header_version(ApiKey.DESCRIBE_CONFIGS, version) > 0
    names = tuple(_encoded(name, flexible=flexible) for name in sorted(LISTENERS | WITHHELD))

    def rewrite(frame: memoryview, _: Context) -> bytes | None:
        data = bytes(frame)
        if not any(_has_port(value) for name in names for value in _values(data, name, flexible=flexible)):
            return None
        if len(frame) > REWRITTEN_BYTES_MAX:
            raise AnswerUnusable(
                f"DescribeConfigs: an answer of {len(frame)} bytes names addresses of brokers; more than "
                f"{REWRITTEN_BYTES_MAX} are not rewritten: ask about brokers in a request of their own"
            )
        return repaired(frame, ApiKey.DESCRIBE_CONFIGS, version, book, hide)

    return rewrite


def hide(answer: messages.DescribeConfigsResponse, book: AddressBook) -> None:
    """Take the addresses of the upstream cluster out of a decoded answer to DescribeConfigs."""
    for result in answer.results or ():
        if result.resource_type != BROKER:
            continue
        ours = book.ours_of(int(result.resource_name)) if result.resource_name.isdecimal() else None
        for entry in result.configs or ():
            _hide(entry, ours)
            for synonym in entry.synonyms or ():
                _hide(synonym, ours)


def _hide(entry: _Setting | _Synonym, ours: Address | None) -> None:
    """In an entry or a synonym of one."""
    if entry.name in LISTENERS:
        shown = listeners(entry.value, ours)
    elif entry.name in WITHHELD:
        shown = None if entry.value else entry.value
    else:
        return
    if shown is None and entry.value is not None and hasattr(entry, "is_sensitive"):
        entry.is_sensitive = True
    entry.value = shown


def listeners(value: str | None, ours: Address | None) -> str | None:
    """A list of listeners with the proxy's address in it; None where it cannot be shown."""
    if not value:
        return value
    shown = []
    for element in value.split(","):
        found = _LISTENER.fullmatch(element)
        if found is None:
            return None
        if not found[2]:
            shown.append(element)
        elif ours is None:
            return None
        else:
            host = f"[{ours.host}]" if ":" in ours.host else ours.host
            shown.append(f"{found[1]}://{host}:{ours.port}")
    return ",".join(shown)


def _values(data: bytes, name: bytes, *, flexible: bool) -> Iterator[bytes]:
    """What stands behind each place of this name, read as the string that its value is.

    It is cheap, for most answers are about topics, of which there may be thousands. Where the name is something else
    (a topic may be called so), what comes out is no value: this only tells which answers are to be decoded.
    """
    at = data.find(name)
    while at >= 0:
        at += len(name)
        try:
            size, start = read_uvarint(data, at) if flexible else (int.from_bytes(data[at : at + 2], "big") + 1, at + 2)
        except (IndexError, RemoteProtocolError):
            size, start = 0, at  # no string stands there
        yield data[start : start + max(size - 1, 0)]
        at = data.find(name, at)


def _has_port(value: bytes) -> bool:
    return b":" in value


def _encoded(name: str, *, flexible: bool) -> bytes:
    """A string of the protocol: its length in front, as a compact string has it or a classic one."""
    size = len(name)
    return (bytes((size + 1,)) if flexible else size.to_bytes(2, "big")) + name.encode()


API = ForwardedApi(key=ApiKey.DESCRIBE_CONFIGS, rewrite=lambda version, parts: rewriter(version, parts.book))
