"""PROXY protocol v2: the client that a header names, and which bytes are no header."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.wire import proxy_header
from kafka_share_proxy.wire.errors import ProxyHeaderRefused

from tests.support.proxy_headers import LOCAL, PROXY, SIGNATURE, extension, header, of_client, with_checksum

UNIX = 0x31


@pytest.mark.parametrize(
    ("sent", "client"),
    [
        (of_client("192.0.2.7"), "192.0.2.7"),
        (of_client("2001:db8::7"), "2001:db8::7"),
        (of_client("::ffff:192.0.2.7"), "192.0.2.7"),
        (of_client("192.0.2.7", extension(0x04, bytes(40)) + extension(0xE2, b"x")), "192.0.2.7"),
        (with_checksum("192.0.2.7"), "192.0.2.7"),
        (header(LOCAL, 0, b""), None),
        (header(LOCAL, 0x11, bytes(12)), None),
        (header(PROXY, 0, b""), None),
        (header(PROXY, UNIX, bytes(216)), None),
    ],
)
def test_a_header_names_its_client(sent: bytes, client: str | None) -> None:
    assert proxy_header.length(sent) == len(sent)
    assert proxy_header.client_of(sent) == client


@pytest.mark.parametrize("count", range(16))
def test_the_length_is_known_after_sixteen_bytes(count: int) -> None:
    sent = of_client("192.0.2.7")
    assert proxy_header.length(sent[:count]) == 16
    assert proxy_header.length(sent[:16]) == len(sent)


@pytest.mark.parametrize("count", range(1, 13))
def test_other_bytes_are_refused_at_the_first_that_differs(count: int) -> None:
    wrong = SIGNATURE[: count - 1] + bytes([SIGNATURE[count - 1] ^ 1])
    with pytest.raises(ProxyHeaderRefused, match="begins without a PROXY protocol header"):
        proxy_header.length(wrong)


def test_version_1_is_refused_by_name() -> None:
    line = b"PROXY TCP4 192.0.2.7 127.0.0.1 40000 9092\r\n"
    assert all(proxy_header.length(line[:count]) == 16 for count in range(6))
    with pytest.raises(ProxyHeaderRefused, match="is of version 1"):
        proxy_header.length(line[:6])


def test_a_header_has_a_largest_size() -> None:
    largest = header(PROXY, 0, bytes(proxy_header.REST_MAX))
    assert proxy_header.length(largest) == len(largest)
    with pytest.raises(ProxyHeaderRefused, match="has 4097 bytes after its first 16, at most 4096"):
        proxy_header.length(header(PROXY, 0, bytes(proxy_header.REST_MAX + 1)))


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (header(0x22, 0x11, bytes(12)), r"unknown values \(2211\)"),
        (header(0x11, 0x11, bytes(12)), r"unknown values \(1111\)"),
        (header(PROXY, 0x41, bytes(12)), "unknown values"),
        (header(PROXY, 0x13, bytes(12)), "unknown values"),
        (header(PROXY, 0x11, bytes(11)), "too short for its addresses"),
        (header(PROXY, 0x21, bytes(35)), "too short for its addresses"),
        (of_client("192.0.2.7", b"\x04"), "an extension of the PROXY protocol header is cut off"),
        (of_client("192.0.2.7", extension(4, bytes(9))[:-1]), "an extension of the PROXY protocol header is cut off"),
        (with_checksum("192.0.2.7")[:-1] + b"\xff", "the checksum of the PROXY protocol header is wrong"),
        (of_client("192.0.2.7", extension(3, b"")), "the checksum of the PROXY protocol header is wrong"),
    ],
)
def test_an_invalid_header_is_refused(sent: bytes, reason: str) -> None:
    with pytest.raises(ProxyHeaderRefused, match=reason):
        proxy_header.client_of(sent)


@given(st.binary(max_size=64), st.integers(0, 255), st.integers(0, 255))
def test_any_bytes_are_a_header_or_refused(rest: bytes, command: int, kind: int) -> None:
    sent = header(command, kind, rest)
    assert proxy_header.length(sent) == len(sent)
    try:
        client = proxy_header.client_of(sent)
    except ProxyHeaderRefused:
        return
    assert client is None or str(ip_address(client)) == client


@given(st.binary(max_size=40))
def test_any_beginning_is_refused_or_needs_more(received: bytes) -> None:
    try:
        needed = proxy_header.length(received)
    except ProxyHeaderRefused:
        assert not SIGNATURE.startswith(received[:12])
    else:
        assert needed > len(received) or received.startswith(SIGNATURE)
