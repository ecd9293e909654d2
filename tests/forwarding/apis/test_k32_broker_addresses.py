"""Listeners of brokers and of controllers as a client sees them: DescribeConfigs."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.forwarding.apis import k32_broker_addresses
from kafka_share_proxy.forwarding.apis.k32_broker_addresses import BROKER, REWRITTEN_BYTES_MAX, listeners, rewriter
from kafka_share_proxy.forwarding.dispatch.routes import Context
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import UnusableResponse
from kafka_share_proxy.wire.values import UNKNOWN_NODE, Address

TOPIC = 2
OURS = Address("proxy.example", 9103)
CONTEXT = Context(UNKNOWN_NODE)
NAMED = "CLIENT://10.0.0.3:9092,INTERNAL://kafka3.internal:9093"
SHOWN = "CLIENT://proxy.example:9103,INTERNAL://proxy.example:9103"
VOTERS = "1@10.0.0.1:9094,3@kafka3.internal:9094"


@pytest.fixture
def book() -> AddressBook:
    book = AddressBook(9100, "proxy.example", lambda *_: True)
    assert book.advertise(3, Address("10.0.0.3", 9092)) == OURS
    return book


def response(*configs: tuple[str, str | None], kind: int = BROKER, name: str = "3") -> Any:
    message = registry.message("DescribeConfigsResponse")
    entries = [
        message.DescribeConfigsResourceResult(
            name=key, value=value, config_source=4, synonyms=[message.DescribeConfigsSynonym(name=key, value=value)]
        )
        for key, value in configs
    ]
    result = message.DescribeConfigsResult(resource_type=kind, resource_name=name, configs=entries)
    return message(results=[result])


def rewritten(book: AddressBook, broker_response: Any, version: int = 4) -> list[Any] | None:
    """The entries a client gets; None: the response passes as it is."""
    frame = frames.response(ApiKey.DESCRIBE_CONFIGS, version, 7, broker_response)
    new = rewriter(version, book)(memoryview(frame)[4:], CONTEXT)
    if new is None:
        return None
    assert int.from_bytes(new[:4], "big") == len(new) - 4
    correlation_id, message = frames.decode_response(ApiKey.DESCRIBE_CONFIGS, version, memoryview(new)[4:])
    assert correlation_id == 7
    return list(message.results[0].configs)


@pytest.mark.parametrize("version", range(1, 5))
def test_the_listeners_of_a_broker_are_the_proxys(book: AddressBook, version: int) -> None:
    """The entry and its synonyms have the broker's listener names; the rest is unchanged."""
    unrelated = (("log.dirs", "/var/kafka"), ("listener.security.protocol.map", "CLIENT:SSL,INTERNAL:PLAINTEXT"))
    broker_response = response(("advertised.listeners", NAMED), ("listeners", NAMED), *unrelated)
    entries = rewritten(book, broker_response, version)
    assert entries is not None
    assert [(e.name, e.value, e.is_sensitive) for e in entries] == [
        ("advertised.listeners", SHOWN, False), ("listeners", SHOWN, False), *((*other, False) for other in unrelated)
    ]  # fmt: skip
    assert [e.synonyms[0].value for e in entries] == [SHOWN, SHOWN, *(value for _, value in unrelated)]


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize("name", sorted(k32_broker_addresses.WITHHELD))
def test_machines_without_an_address_here_are_withheld(book: AddressBook, name: str, version: int) -> None:
    """They are treated like a password."""
    entries = rewritten(book, response((name, VOTERS), ("node.id", "3")), version)
    assert entries is not None
    assert [(e.value, e.is_sensitive, e.synonyms[0].value) for e in entries] == [(None, True, None), ("3", False, "3")]


@pytest.mark.parametrize("name", ["4", "", "x", "-1"])
def test_listeners_of_a_broker_without_an_address_here_are_withheld(book: AddressBook, name: str) -> None:
    entries = rewritten(book, response(("listeners", NAMED), name=name))
    assert entries is not None
    assert (entries[0].value, entries[0].is_sensitive) == (None, True)


@pytest.mark.parametrize("value", ["", None])
def test_what_names_nothing_stays(book: AddressBook, value: str | None) -> None:
    assert rewritten(book, response(("controller.quorum.voters", value), ("listeners", value))) is None
    entries = rewritten(book, response(("controller.quorum.voters", value), ("listeners", NAMED)))
    assert entries is not None
    assert [(e.value, e.is_sensitive) for e in entries] == [(value, False), (SHOWN, False)]


def test_other_resources_pass_as_they_are(book: AddressBook) -> None:
    assert rewritten(book, response(("retention.ms", "1"), kind=TOPIC, name="t")) is None
    assert rewritten(book, response(("log.dirs", "listeners"), ("node.id", "3"))) is None
    assert rewritten(book, response(("retention.ms", "1"), kind=TOPIC, name="listeners")) is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("PLAINTEXT://:9092", "PLAINTEXT://:9092"),
        ("A://0.0.0.0:9092, B://[::1]:9093", "A://proxy.example:9103,B://proxy.example:9103"),
        ("A://kafka:9092,:nothing", None),
        ("kafka:9092", None),
        ("A://kafka", None),
    ],
)
def test_lists_of_listeners(value: str, shown: str | None) -> None:
    """Unparsable ones are not shown."""
    assert listeners(value, OURS) == shown


def test_an_address_of_ipv6_has_brackets() -> None:
    assert listeners("A://kafka:9092", Address("::1", 9103)) == "A://[::1]:9103"


def test_a_response_too_large_to_be_rewritten_ends_the_connection(book: AddressBook) -> None:
    """It would delay all clients; without an address in it, it is forwarded whatever its size."""
    large = ("log.dirs", "x" * 30_000)
    many = [large] * (REWRITTEN_BYTES_MAX // 60_000 + 1)
    assert rewritten(book, response(*many)) is None
    with pytest.raises(UnusableResponse, match="in a separate request"):
        rewritten(book, response(*many, ("listeners", NAMED)))
