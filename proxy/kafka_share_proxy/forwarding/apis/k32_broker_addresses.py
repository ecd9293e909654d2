"""Addresses in the settings of brokers in DescribeConfigs: clients get none of the upstream cluster.

- `listeners` and `advertised.listeners` keep the names of the listeners. Each listener with a host gets the one
  address of the broker here. One without a host (Kafka's default) contains no address and stays.
- `controller.quorum.voters`, `controller.quorum.bootstrap.servers` and `zookeeper.connect` name machines without an
  address here. Their values are withheld, in the way a broker withholds a password: null, and marked as sensitive. The
  same applies to the listeners of a broker without an address here, and to unreadable lists.
- The same applies to the synonyms of an entry. An empty value stays, and every other setting is forwarded unchanged.

Requests that change settings are forwarded as they are: the broker gets the values that the client sets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

from kafka_share_proxy.forwarding.dispatch.forwarded_api import ForwardedApi
from kafka_share_proxy.forwarding.dispatch.routes import Context, Rewrite
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.forwarding.rewriting.address_rewriting import repaired
from kafka_share_proxy.wire.codec import headers
from kafka_share_proxy.wire.codec.primitives import read_uvarint
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import RemoteProtocolError, UnusableResponse
from kafka_share_proxy.wire.values import Address

_Setting: TypeAlias = "messages.DescribeConfigsResponse.DescribeConfigsResourceResult"
_Synonym: TypeAlias = "messages.DescribeConfigsResponse.DescribeConfigsSynonym"

BROKER = 4

LISTENERS = frozenset({"listeners", "advertised.listeners"})
WITHHELD = frozenset({"controller.quorum.voters", "controller.quorum.bootstrap.servers", "zookeeper.connect"})

REWRITTEN_BYTES_MAX = 256 << 10
"""Maximum bytes of a response with addresses: decoded in at most 16 ms. All settings of a broker take about 110 kB."""

_LISTENER = re.compile(r"\s*([^:/,\s]+)://(\[[^\]]*\]|[^:/\[\]]*):(-?\d+)\s*")
"""NAME://host:port (kafka.cluster.EndPoint)."""


def rewriter(version: int, book: AddressBook) -> Rewrite:
    flexible = headers.response_header_version(ApiKey.DESCRIBE_CONFIGS, version) > 0
    names = tuple(_encoded(name, flexible=flexible) for name in sorted(LISTENERS | WITHHELD))

    def rewrite(frame: memoryview, _: Context) -> bytes | None:
        data = bytes(frame)
        if not any(_has_port(value) for name in names for value in _values(data, name, flexible=flexible)):
            return None
        if len(frame) > REWRITTEN_BYTES_MAX:
            raise UnusableResponse(
                f"DescribeConfigs: a response of {len(frame)} bytes names addresses of brokers; more than "
                f"{REWRITTEN_BYTES_MAX} are not rewritten: describe brokers in a separate request"
            )
        return repaired(frame, ApiKey.DESCRIBE_CONFIGS, version, book, hide)

    return rewrite


def hide(response: messages.DescribeConfigsResponse, book: AddressBook) -> None:
    for result in response.results or ():
        if result.resource_type != BROKER:
            continue
        advertised = book.ours_of(int(result.resource_name)) if result.resource_name.isdecimal() else None
        for entry in result.configs or ():
            _hide(entry, advertised)
            for synonym in entry.synonyms or ():
                _hide(synonym, advertised)


def _hide(entry: _Setting | _Synonym, advertised: Address | None) -> None:
    if entry.name in LISTENERS:
        shown = listeners(entry.value, advertised)
    elif entry.name in WITHHELD:
        shown = None if entry.value else entry.value
    else:
        return
    if shown is None and entry.value is not None and hasattr(entry, "is_sensitive"):
        entry.is_sensitive = True
    entry.value = shown


def listeners(value: str | None, advertised: Address | None) -> str | None:
    """Return a list of listeners with the proxy's address. None to withhold it."""
    if not value:
        return value
    shown = []
    for element in value.split(","):
        match = _LISTENER.fullmatch(element)
        if match is None:
            return None
        if not match[2]:
            shown.append(element)
        elif advertised is None:
            return None
        else:
            host = f"[{advertised.host}]" if ":" in advertised.host else advertised.host
            shown.append(f"{match[1]}://{host}:{advertised.port}")
    return ",".join(shown)


def _values(data: bytes, name: bytes, *, flexible: bool) -> Iterator[bytes]:
    """Yield the bytes after each occurrence of this name, read as the string that its value is."""
    at = data.find(name)
    while at >= 0:
        at += len(name)
        try:
            size, start = read_uvarint(data, at) if flexible else (int.from_bytes(data[at : at + 2], "big") + 1, at + 2)
        except (IndexError, RemoteProtocolError):
            size, start = 0, at  # there is no string at this position
        yield data[start : start + max(size - 1, 0)]
        at = data.find(name, at)


def _has_port(value: bytes) -> bool:
    return b":" in value


def _encoded(name: str, *, flexible: bool) -> bytes:
    size = len(name)
    return (bytes((size + 1,)) if flexible else size.to_bytes(2, "big")) + name.encode()


API = ForwardedApi(key=ApiKey.DESCRIBE_CONFIGS, rewrite=lambda version, parts: rewriter(version, parts.book))
