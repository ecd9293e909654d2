"""Addresses in responses: all are found, by derivation, and can be replaced in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka_share_proxy.wire.definitions import endpoints, registry, specs
from kafka_share_proxy.wire.definitions.endpoints import Endpoint
from kafka_share_proxy.wire.definitions.specs import FieldSpec, StructSpec
from kafka_share_proxy.wire.errors import LocalProtocolError, RemoteProtocolError

from tests.wire.samples import Samples

ROUNDS = 12

REWRITTEN = {0, 3, 10, 60, 78, 79}
"""Produce, Metadata, FindCoordinator, DescribeCluster, ShareFetch, ShareAcknowledge."""
OFFERED_UP_TO = {1: 15, 55: 1}
"""Fetch and DescribeQuorum carry addresses only in versions that clients are not offered."""
WAIVED = {
    88: "addresses of Streams applications, which are no brokers",
    89: "addresses of Streams applications, which are no brokers",
}

VERSIONS = [
    (key, version)
    for key in sorted(endpoints.carriers())
    for version in range(registry.versions(key)[0], registry.versions(key)[1] + 1)
]


def test_every_carrier_is_rewritten_or_waived() -> None:
    """A release with a new response that contains addresses fails here, until it is handled."""
    reachable = {key for key in endpoints.carriers() if "broker" in registry.listeners(key)}
    assert reachable == REWRITTEN | set(OFFERED_UP_TO) | set(WAIVED)


def test_capped_apis_carry_no_address() -> None:
    """The offered versions of Fetch and DescribeQuorum have none; the next version would."""
    for key, highest in OFFERED_UP_TO.items():
        assert all(endpoints.locator(key, v) is None for v in range(registry.versions(key)[0], highest + 1))
        assert endpoints.locator(key, highest + 1) is not None


def test_carriers_are_all_that_have_a_host() -> None:
    """Independent of the walk: no other response even mentions a port."""
    for key in registry.API_KEYS:
        text = str(specs.document(f"{registry.API_KEYS[key]}Response")).lower()
        assert ("'port'" in text) == (key in endpoints.carriers())


def flat(struct: StructSpec, version: int, message: Any, node_id: int = -1) -> Iterator[tuple[int, str, int]]:
    """The addresses of a decoded response in the order of the wire: (node id, host, port)."""
    here = [field for field in struct.fields if version in field.versions]
    ordered = sorted(here, key=lambda field: (field.is_tagged(version), field.tag))
    for field in ordered:
        value = getattr(message, field.attribute)
        if field.name in {"NodeId", "BrokerId"}:
            node_id = value
        elif field.name == "Host" and field.type == "string":
            yield node_id, value, message.port
        elif field.struct is not None:
            for one in value or () if field.is_array else (value,) if value is not None else ():
                yield from flat(field.struct, version, one, node_id)


def modest(field: FieldSpec, _hint: Any, value: Any) -> Any:
    """Ports that any type can hold."""
    return abs(value) % 65536 if field.name == "Port" else value


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_the_locator_finds_the_addresses_that_a_full_decode_finds(key: int, version: int) -> None:
    """In every response that contains addresses, with any other fields, unknown tags included."""
    codec, locate = registry.response(key, version), endpoints.locator(key, version)
    samples = Samples(f"{key}-{version}", modest, tags=True)
    endpoint_count = 0
    for _ in range(ROUNDS):
        message = samples.message(codec.spec, version)
        expected = list(flat(codec.spec.root, version, message))
        data = b"head" + codec.encode(message)
        located = [] if locate is None else locate(memoryview(data), 4)
        assert [(one.node_id, one.host, one.port) for one in located] == expected
        for one in located:
            assert data[one.start : one.end] == endpoints.encode(key, version, one.host or "", one.port)
        endpoint_count += len(expected)
    assert bool(endpoint_count) == (locate is not None)


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_spliced_responses_read_as_rewritten_ones(key: int, version: int) -> None:
    """New addresses between the old bytes give the message that decoding, changing and encoding gives."""
    codec, locate = registry.response(key, version), endpoints.locator(key, version)
    if locate is None:
        assert not endpoints.in_tagged_field(key, version)
        return
    samples = Samples(f"splice-{key}-{version}", modest, tags=True)
    for _ in range(ROUNDS):
        data = codec.encode(samples.message(codec.spec, version))
        located = locate(data, 0)
        replaced = [(one, endpoints.encode(key, version, f"proxy-{one.node_id}" * 9, 19092)) for one in located]
        spliced = endpoints.splice(data, replaced)
        again = [(one.node_id, one.host, one.port) for one in locate(spliced, 0)]
        assert again == [(one.node_id, f"proxy-{one.node_id}" * 9, 19092) for one in located]
        assert codec.encode(codec.decode(spliced)) == spliced
        back = [(new, data[old.start : old.end]) for new, old in zip(locate(spliced, 0), located, strict=True)]
        assert endpoints.splice(spliced, back) == data


def test_addresses_in_tagged_fields() -> None:
    """Only of Produce from v10 on among those that are rewritten: their sizes have to be corrected."""
    tagged = {(key, version) for key, version in VERSIONS if endpoints.in_tagged_field(key, version)}
    assert {key for key, _ in tagged} & REWRITTEN == {0}
    assert (0, 9) not in tagged
    assert (0, 10) in tagged


def test_sizes_around_sizes_grow_too() -> None:
    """A tagged field in a tagged field: when the inner size takes another byte, the outer one counts it."""
    inner = b"\x05" * 120
    data = bytes([1, 5, 125, 1, 7, 121]) + b"\x01" + inner + b"zz"
    outer_size, inner_size = endpoints.TagSize(2, 3, 125), endpoints.TagSize(5, 6, 121)
    endpoint = Endpoint(1, 6, 7, "", 0, (outer_size, inner_size))
    spliced = endpoints.splice(data, [(endpoint, b"\x01" * 20)])
    assert spliced == bytes([1, 5]) + b"\x91\x01" + bytes([1, 7]) + b"\x8c\x01" + b"\x01" * 20 + inner + b"zz"


def test_the_walk_stops_after_the_last_address() -> None:
    """Metadata lists brokers first: thousands of later topics are not even read."""
    response = registry.message("MetadataResponse")
    message = response(brokers=[response.MetadataResponseBroker(node_id=4, host="h", port=1)])
    data = registry.response(3, 12).encode(message)
    locate = endpoints.locator(3, 12)
    assert locate is not None
    whole = locate(data, 0)
    assert locate(data[: whole[0].end + 2] + b"\xff" * 50, 0) == whole


@pytest.mark.parametrize(("key", "version"), [one for one in VERSIONS if endpoints.locator(*one)])
def test_broken_responses_are_refused(key: int, version: int) -> None:
    """Any bytes give endpoints or RemoteProtocolError: cut off, or a byte changed."""
    locate = endpoints.locator(key, version)
    assert locate is not None
    data = registry.response(key, version).encode(
        Samples(f"{key}-{version}-broken", modest, tags=True).message(registry.response_spec(key), version)
    )
    for cut in range(0, len(data), max(1, len(data) // 60)):
        spoiled = bytearray(data)
        spoiled[cut] = 0xFF
        for broken in (data[:cut], bytes(spoiled), data[:cut] + b"\xff" * 8):
            try:
                located = locate(broken, 0)
            except RemoteProtocolError:
                continue
            assert all(0 <= one.start < one.end <= len(broken) for one in located)


def test_an_invalid_address_raises_local_protocol_error() -> None:
    """A response without addresses, a port that does not fit, a host longer than any name."""
    with pytest.raises(LocalProtocolError):
        endpoints.encode(12, 4, "h", 1)
    with pytest.raises(LocalProtocolError):
        endpoints.encode(88, 0, "h", 70_000)
    with pytest.raises(LocalProtocolError):
        endpoints.encode(3, 12, "h" * 40_000, 1)
