"""Addresses in settings."""

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.app.settings.hostports import (
    is_server_name,
    parse_address,
    parse_addresses,
    parse_networks,
    parse_nodes,
)
from kafka_share_proxy.wire.values import Address


@pytest.mark.parametrize(
    ("text", "expected"),
    [("kafka:9092", Address("kafka", 9092)), (" [::1]:1 ", Address("::1", 1)), (Address("a", 2), Address("a", 2))],
)
def test_addresses_are_read(text: object, expected: Address) -> None:
    """Names, IPv4 and bracketed IPv6, blanks around them dropped."""
    assert parse_address(text) == expected


@given(st.text(), st.integers(1, 65535))
def test_formatted_address_is_parsed_to_the_same_value(host: str, port: int) -> None:
    """str() of an address is a way to write it."""
    if host and host == host.strip() and not host.startswith("[") and ":" not in host:
        assert parse_address(str(Address(host, port))) == Address(host, port)


@pytest.mark.parametrize("wrong", ["", "a", "a:", ":1", "a:0", "a:65536", "a:x", "::1:9", None, 5, "a:１"])
def test_invalid_address_is_refused(wrong: object) -> None:
    """With words that say how to write one."""
    with pytest.raises(ValueError, match=r"HOST:PORT|port must|IPv6"):
        parse_address(wrong)


def test_lists_and_maps_have_a_short_form() -> None:
    """Environment variables and flags are text."""
    assert parse_addresses("a:1, b:2,") == parse_addresses(["a:1", "b:2"]) == (Address("a", 1), Address("b", 2))
    assert parse_nodes("1=a:1,2=b:2") == parse_nodes({1: "a:1", "2": "b:2"}) == {1: Address("a", 1), 2: Address("b", 2)}


@pytest.mark.parametrize("wrong", [5, {"a": 1}])
def test_invalid_list_is_refused(wrong: object) -> None:
    """A number or a map is no list of servers."""
    with pytest.raises(ValueError, match="list of HOST:PORT"):
        parse_addresses(wrong)


@pytest.mark.parametrize("wrong", [["a:1"], {"-1": "a:1"}, {"x": "a:1"}, "a:1"])
def test_invalid_broker_id_is_refused(wrong: object) -> None:
    """Broker ids are whole numbers from 0 on."""
    with pytest.raises(ValueError, match="broker id"):
        parse_nodes(wrong)


def test_networks_are_read_from_a_list_or_text() -> None:
    """An address alone is a network of one."""
    expected = (ip_network("10.1.0.0/16"), ip_network("::1/128"))
    assert parse_networks("10.1.0.0/16, ::1") == parse_networks(["10.1.0.0/16", "::1"]) == expected
    assert parse_networks(expected) == expected


@pytest.mark.parametrize("wrong", [5, {"a": 1}, ["10.1.0.0/33"], "10.1.2.3/16", "kafka.example"])
def test_invalid_network_is_refused(wrong: object) -> None:
    """A host name is none: its addresses may change."""
    with pytest.raises(ValueError, match=r"network|host bits|IPv4"):
        parse_networks(wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kafka.example", True),
        ("Broker-1.Kafka.example", True),
        ("1.kafka.example", True),
        ("localhost", False),
        ("127.0.0.1", False),
        ("::1", False),
        ("kafka.example.", False),
        ("-a.example", False),
        ("k\u00e4fka.example", False),
        ("*.example", False),
        ("", False),
        ("a" * 64 + ".example", False),
        (".".join(["a" * 63] * 4), False),
    ],
)
def test_a_server_name_is_one_that_every_client_sends(text: str, expected: bool) -> None:
    assert is_server_name(text) is expected
