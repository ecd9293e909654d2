"""PROXY protocol headers, version 2, as load balancers send them (proxy-protocol.txt, section 2.2)."""

from __future__ import annotations

import ipaddress
import struct

from crc32c import crc32c

SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")
LOCAL, PROXY = 0x20, 0x21
TCP4, TCP6 = 0x11, 0x21


def header(command: int, kind: int, rest: bytes) -> bytes:
    """A header with any values."""
    return SIGNATURE + struct.pack(">BBH", command, kind, len(rest)) + rest


def of_client(client: str, extensions: bytes = b"") -> bytes:
    """The header for a TCP client at this address."""
    source = ipaddress.ip_address(client)
    target = ipaddress.ip_address("127.0.0.1" if source.version == 4 else "::1")
    addresses = source.packed + target.packed + struct.pack(">HH", 40_000, 9092)
    return header(PROXY, TCP4 if source.version == 4 else TCP6, addresses + extensions)


def extension(kind: int, value: bytes) -> bytes:
    return struct.pack(">BH", kind, len(value)) + value


def with_checksum(client: str) -> bytes:
    """The same with the checksum in the last extension."""
    blank = of_client(client, extension(0x03, bytes(4)))
    return blank[:-4] + struct.pack(">I", crc32c(blank))
