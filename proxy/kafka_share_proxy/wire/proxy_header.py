"""Header of the PROXY protocol v2, in which a load balancer names its client (loop/README.md rules 25 and 26)."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator

from kafka_share_proxy.wire.errors import ProxyHeaderRefused

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
VERSION_1 = b"PROXY "
"""Beginning of the text form, version 1."""
FIXED_BYTES = 16
"""Signature, version and command, family and transport, length of the rest."""
REST_MAX = 4096
"""Maximum bytes after the fixed part. Addresses take up to 216. The others are extensions (TLVs)."""

LOCAL, PROXY = 0x20, 0x21
"""Version and command: the load balancer's own connection (a health check), or one for a client."""
ADDRESS_BYTES = {0: 0, 1: 12, 2: 36, 3: 216}
"""Bytes of the addresses by family: unspecified, IPv4, IPv6, Unix socket."""
HOST_BYTES = {1: 4, 2: 16}
"""Bytes of one address of the families that name a host."""
TRANSPORTS = range(3)
"""Unspecified, stream, datagram."""
CRC32C = 0x03
"""Type of the extension with the checksum."""


def length(received: bytes) -> int:
    """Return how many bytes the header has, at least as many as are known to be needed.

    Raises ProxyHeaderRefused if the bytes do not begin a header of version 2.
    """
    if VERSION_1.startswith(received[: len(VERSION_1)]):
        if len(received) >= len(VERSION_1):
            raise ProxyHeaderRefused("the PROXY protocol header is of version 1, which is not supported")
        return FIXED_BYTES
    if not SIGNATURE.startswith(received[: len(SIGNATURE)]):
        raise ProxyHeaderRefused("the connection begins without a PROXY protocol header")
    if len(received) < FIXED_BYTES:
        return FIXED_BYTES
    rest = int.from_bytes(received[14:FIXED_BYTES], "big")
    if rest > REST_MAX:
        raise ProxyHeaderRefused(f"the PROXY protocol header has {rest} bytes after its first 16, at most {REST_MAX}")
    return FIXED_BYTES + rest


def client_of(header: bytes) -> str | None:
    """Return the client's address in a whole header. None: the connection's own address is the client's.

    Raises ProxyHeaderRefused if the header is invalid.
    """
    command, family, transport = header[12], header[13] >> 4, header[13] & 0x0F
    if command not in (LOCAL, PROXY) or family not in ADDRESS_BYTES or transport not in TRANSPORTS:
        raise ProxyHeaderRefused(f"the PROXY protocol header has unknown values ({header[12:14].hex()})")
    if command == LOCAL:
        return None
    end = FIXED_BYTES + ADDRESS_BYTES[family]
    if len(header) < end:
        raise ProxyHeaderRefused("the PROXY protocol header is too short for its addresses")
    _check(header, end)
    if family not in HOST_BYTES or not transport:
        return None
    address = ipaddress.ip_address(header[FIXED_BYTES : FIXED_BYTES + HOST_BYTES[family]])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _check(header: bytes, start: int) -> None:
    """Verify the checksum, if there is one."""
    for kind, begin, end in _extensions(header, start):
        if kind == CRC32C:
            from crc32c import crc32c  # imported here because few load balancers send it

            zeroed = header[:begin] + bytes(end - begin) + header[end:]
            if header[begin:end] != struct.pack(">I", crc32c(zeroed)):
                raise ProxyHeaderRefused("the checksum of the PROXY protocol header is wrong")


def _extensions(header: bytes, at: int) -> Iterator[tuple[int, int, int]]:
    """Yield type, begin and end of each extension."""
    while at < len(header):
        begin = at + 3
        at = begin + int.from_bytes(header[begin - 2 : begin], "big")
        if begin > len(header) or at > len(header):
            raise ProxyHeaderRefused("an extension of the PROXY protocol header is cut off")
        yield header[begin - 3], begin, at
