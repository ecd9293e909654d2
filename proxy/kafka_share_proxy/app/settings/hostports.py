"""Parsers of addresses in settings: HOST:PORT, lists of them, maps of node id to address, and networks."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from kafka_share_proxy.wire.values import Address

PORT_MAX = 65_535
NAME_MAX = 253
"""Maximum characters of a host name (RFC 1035, 2.3.4)."""
_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_SERVER_NAME = re.compile(rf"({_LABEL}\.)+(?![0-9]+$){_LABEL}", re.IGNORECASE)


def parse_address(value: object) -> Address:
    """Parse HOST:PORT or [IPV6]:PORT. Raises ValueError with the reason."""
    if isinstance(value, Address):
        return value
    host, _, port = str(value).strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("an IPv6 address is written [ADDRESS]:PORT")
    if not host or not port.isascii() or not port.isdigit():
        raise ValueError("write HOST:PORT, for example kafka-1:9092")
    if not 0 < int(port) <= PORT_MAX:
        raise ValueError(f"the port must be 1 to {PORT_MAX}")
    return Address(host, int(port))


def parse_addresses(value: object) -> tuple[Address, ...]:
    """Parse a list or comma-separated text. Raises ValueError if an address is invalid."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError("write a list of HOST:PORT")
    return tuple(parse_address(part) for part in parts if str(part).strip())


def parse_nodes(value: object) -> dict[int, Address]:
    """Parse a map of node id to HOST:PORT, or text like `1=kafka-1:9092,2=kafka-2:9092`. Raises ValueError."""
    if isinstance(value, str):
        value = dict(part.partition("=")[::2] for part in value.split(",") if part.strip())
    if not isinstance(value, Mapping):
        raise ValueError("write a map of broker id to HOST:PORT")
    nodes: dict[int, Address] = {}
    for node_id, address in value.items():
        text = str(node_id).strip()
        if not text.isascii() or not text.isdigit():
            raise ValueError(f"{text!r} is no broker id; ids are whole numbers from 0 on")
        nodes[int(text)] = parse_address(address)
    return nodes


def parse_networks(value: object) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """Parse a list or comma-separated text of addresses and networks. Raises ValueError if one is invalid."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError("write a list of addresses or networks, for example 10.1.0.0/16")
    return tuple(ipaddress.ip_network(str(part).strip()) for part in parts if str(part).strip())


def is_server_name(text: str) -> bool:
    """Return True if every TLS client sends this name: with a dot, and no address.

    Java sends no server name without a dot (sun.security.ssl.Utilities.rawToSNIHostName).
    """
    return len(text) <= NAME_MAX and _SERVER_NAME.fullmatch(text) is not None
