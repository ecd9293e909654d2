"""Every carrier of addresses in every version, as tables (tests/tables) and from the definitions."""

import os
import random
from contextlib import suppress

import pytest
from kafka_share_proxy.forwarding.dispatch import route_table
from kafka_share_proxy.forwarding.dispatch.offered_versions import CAPS, EffectiveVersions, Offer, client_facing
from kafka_share_proxy.forwarding.dispatch.routes import Context, Kind, Route, header
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting import address_rewriting
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.wire.codec import frames, headers
from kafka_share_proxy.wire.definitions import endpoints, registry
from kafka_share_proxy.wire.definitions.specs import FieldSpec
from kafka_share_proxy.wire.errors import LocalProtocolError, RemoteProtocolError, UnusableResponse
from kafka_share_proxy.wire.values import Address

from tests.tables.cases import CORRELATION_ID, Case, cases
from tests.wire.samples import Samples

CONTEXT = Context(node_id=1)
WAIVED = {api.key for api in route_table.FORWARDED if api.waived}
ALL = list(cases())


def book_for(case: Case) -> AddressBook:
    book = AddressBook(20000, case.host, lambda node_id, _: node_id not in case.unbound)
    for node_id, address in case.known.items():
        book.advertise(node_id, Address(*address))
    return book


def route_for(case: Case) -> Route:
    routes = route_table.build(book_for(case), EffectiveVersions(Offer()), Limits(), {})
    route = routes[header(case.key, case.version)]
    if case.all_topics:
        request = registry.message("MetadataRequest")(topics=[] if case.version == 0 else None)
        frame = bytearray(frames.request(case.key, case.version, 1, "client", request)[4:])
        route = route.amend(memoryview(frame)) or route
    return route


@pytest.mark.parametrize("case", ALL, ids=lambda case: f"{registry.API_KEYS[case.key]} v{case.version}: {case.name}")
def test_the_client_gets_the_rewritten_addresses(case):
    """Byte for byte what the case says, the same from the cache, and None where nothing changes."""
    route = route_for(case)
    frame = case.frame()
    if case.reported is None:
        for _ in range(2):
            with pytest.raises(UnusableResponse):
                route.rewrite(memoryview(frame), CONTEXT)
        return
    expected = case.expected()
    for correlation_id in (CORRELATION_ID, -1):
        requested = correlation_id.to_bytes(4, "big", signed=True)
        rewritten = route.rewrite(memoryview(requested + frame[4:]), CONTEXT)
        if case.reported != {}:
            assert rewritten is not None
        assert rewritten is None or bytes(rewritten) == expected[:4] + requested + expected[8:]


@pytest.mark.parametrize("case", ALL, ids=lambda case: f"{registry.API_KEYS[case.key]} v{case.version}: {case.name}")
def test_any_cut_of_a_response_is_refused_not_passed(case):
    """A broker that sends nonsense ends the connection; an address never slips through half read."""
    frame = case.frame()
    hosts = [e.host for e in endpoints.locator(case.key, case.version)(frame, body(case, frame)) if e.host]
    route = route_for(case)
    for cut in range(5, len(frame), max(1, len(frame) // 40)):
        try:
            rewritten = route.rewrite(memoryview(frame[:cut]), CONTEXT)
        except (RemoteProtocolError, UnusableResponse):
            continue
        passed = bytes(rewritten) if rewritten is not None else frame[:cut]
        assert not any(host.encode() in passed for host in hosts)


def body(case: Case, frame: bytes) -> int:
    return headers.response_body_offset(case.key, case.version, frame)


def test_an_unknown_tag_in_the_response_header_survives():
    """Both ways: spliced, and through the codec."""
    case = next(c for c in ALL if c.key == 3 and c.version == 12 and c.reported and not c.unbound)
    without = next(c for c in ALL if c.key == 3 and c.version == 12 and c.unbound and c.reported)
    for each in (case, without):
        frame, tags = each.frame(), bytes.fromhex("0105020a0b")
        rewritten = route_for(each).rewrite(memoryview(frame[:4] + tags + frame[5:]), CONTEXT)
        expected = each.expected()
        assert rewritten[4:] == expected[4:8] + tags + expected[9:]
        assert int.from_bytes(rewritten[:4], "big") == len(rewritten) - 4


def test_no_carrier_in_the_definitions_is_forgotten():
    """Every client-facing (API, version) whose response has a host and a port is rewritten, capped or waived."""
    offer = EffectiveVersions(Offer())
    routes = route_table.build(AddressBook(1, "h", lambda *_: True), offer, Limits(), {})
    carrying = {(route.key, route.version) for route in routes.values() if endpoints.locator(route.key, route.version)}
    passed = {(r.key, r.version) for r in routes.values() if r.rewrite is None and r.kind is not Kind.REFUSE}
    assert {key for key, _ in carrying & passed} == WAIVED
    assert {key for key, _ in carrying - passed} == {0, 1, 3, 10, 55, 60, 78, 79}
    refused = {(r.key, r.version) for r in routes.values() if r.kind is Kind.REFUSE}
    assert carrying & refused == {(1, 16), (1, 17), (1, 18), (55, 2)}


def test_a_new_carrier_keeps_the_proxy_from_starting(monkeypatch):
    """A schema upgrade that adds addresses to an API without a rewriter must be noticed."""
    monkeypatch.setattr(route_table, "FORWARDED", [api for api in route_table.FORWARDED if api.key != 79])
    offer = EffectiveVersions(Offer())
    with pytest.raises(LocalProtocolError, match="ShareAcknowledge v1 carries addresses"):
        route_table.build(AddressBook(1, "h", lambda *_: True), offer, Limits(), {})


def test_no_host_is_written_without_a_port():
    """The definitions' rule (host and port side by side) misses no broker: what else is called host are clients."""
    lonely = set()
    for key in client_facing():
        spec = registry.response_spec(key)
        for struct in (spec.root, *spec.structs.values()):
            names = {field.name for field in struct.fields}
            lonely |= {(registry.API_KEYS[key], name) for name in names if "Host" in name and "Port" not in names}
    members = {("ConsumerGroupDescribe", "ClientHost"), ("DescribeGroups", "ClientHost")}
    members |= {("ShareGroupDescribe", "ClientHost"), ("StreamsGroupDescribe", "ClientHost")}
    assert lonely == members | {("DescribeAcls", "Host"), ("DeleteAcls", "Host")}


def test_rewriting_a_response_without_addresses_is_an_internal_error():
    with pytest.raises(LocalProtocolError):
        address_rewriting.rewriter(12, 4, AddressBook(1, "h", lambda *_: True), address_rewriting.drop_node_endpoints)


def test_random_bytes_are_refused_or_pass():
    """Never another error than those of the protocol, never a frame with a wrong size."""
    routes = route_table.build(AddressBook(20000, "h", lambda *_: True), EffectiveVersions(Offer()), Limits(), {})
    for route in [route for route in routes.values() if route.rewrite is not None]:
        for size in (4, 5, 9, 40, 200):
            frame = os.urandom(size)
            with suppress(RemoteProtocolError, UnusableResponse):
                rewritten = route.rewrite(memoryview(frame), CONTEXT)
                assert rewritten is None or int.from_bytes(rewritten[:4], "big") == len(rewritten) - 4


THEIRS = "upstream-host"
CARRYING = [
    (key, version)
    for key in sorted(endpoints.carriers() & client_facing() - WAIVED)
    for version in range(registry.versions(key)[0], CAPS.get(key, registry.versions(key)[1]) + 1)
    if endpoints.locator(key, version) is not None
]


class Addressed:
    """Builder that gives every broker of a generated response an address of the upstream cluster, sometimes none."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def __call__(self, field: FieldSpec, _: object, value: object) -> object:
        if field.name == "Host":
            return self.random.choice(("", THEIRS, THEIRS + "-2", THEIRS + ".with.a.long.name" * 8))
        if field.name == "Port":
            return self.random.randrange(1, 65536)
        if field.entity == "brokerId" and not field.is_array:
            return self.random.choice((-1, 0, 1, 2, 3, 70_000))
        return value


@pytest.mark.parametrize(("key", "version"), CARRYING)
def test_no_upstream_address_is_in_any_response(key, version):
    """Generated responses, unknown tags everywhere, brokers with and without listener: no upstream host is in the
    result.
    """
    seed = f"leak-{key}-{version}"
    addressed = Addressed(seed)
    samples = Samples(seed, addressed, tags=True)
    bound: set[int] = set()
    book = AddressBook(20000, "proxy.example", lambda node_id, _: node_id in bound)
    routes = route_table.build(book, EffectiveVersions(Offer()), Limits(), {})
    rewritten_count = 0
    for _ in range(60):
        for node_id in range(4):
            book.forget(node_id)
        book.retry_unbound()
        bound = {node_id for node_id in range(4) if addressed.random.random() < 0.7}
        response = frames.response(key, version, 9, samples.message(registry.response_spec(key), version))[4:]
        try:
            rewritten = routes[header(key, version)].rewrite(memoryview(response), CONTEXT)
        except UnusableResponse:
            continue
        client_response = response if rewritten is None else rewritten[4:]
        assert THEIRS.encode() not in client_response
        again = frames.decode_response(key, version, client_response)[1]
        assert frames.response(key, version, 9, again)[4:] == client_response, "a well-formed answer"
        rewritten_count += rewritten is not None
    assert rewritten_count
