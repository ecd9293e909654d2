"""The routes of the whole product."""

import pytest
from kafka_share_proxy.forwarding.dispatch import route_table
from kafka_share_proxy.forwarding.dispatch.early_matches import EveryRequest
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer, client_facing
from kafka_share_proxy.forwarding.dispatch.routes import Kind, Routes, header
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import LocalProtocolError


async def handler(call):
    return None


SERVED = {key: route_table.Served(handler) for key in share_group_apis.OFFER.apis} | {
    16: route_table.Served(handler, EveryRequest())
}


def build(offer: Offer, served=None) -> Routes:
    book = AddressBook(20000, "proxy.example", lambda *_: True)
    return route_table.build(book, EffectiveVersions(offer), Limits(), SERVED if served is None else served)


@pytest.fixture(scope="module")
def local() -> Routes:
    return build(Offer((share_group_apis.OFFER,)))


@pytest.fixture(scope="module")
def upstream() -> Routes:
    return build(Offer(), {})


def test_every_client_facing_version_has_a_route(local, upstream):
    for routes in (local, upstream):
        for key in client_facing():
            lowest, highest = registry.versions(key)
            for version in range(lowest, highest + 1):
                assert header(key, version) in routes
                route = routes[header(key, version)]
                assert (route.key, route.version) == (key, version)
                assert (route.kind is Kind.REFUSE) == bool(route.reason)


def test_what_is_not_for_clients_is_refused_with_a_reason(upstream):
    for key in [key for key in registry.API_KEYS if key not in client_facing()]:
        route = upstream[header(key, registry.versions(key)[1])]
        assert route.kind is Kind.REFUSE
        assert registry.API_KEYS[key] in route.reason
    assert upstream[header(7, 0)].kind is Kind.REFUSE, "ControlledShutdown, which Kafka gave up"


@pytest.mark.parametrize(("key", "version"), [(1, 16), (1, 18), (55, 2), (0, 2), (0, 14), (3, 14), (3, -1), (93, 5)])
def test_what_is_not_offered_is_refused(upstream, key, version):
    route = upstream[header(key, version)]
    assert route.kind is Kind.REFUSE
    assert f"v{version}" in route.reason


def test_the_kinds_that_the_plane_has_to_know(upstream):
    assert {upstream[header(0, v)].kind for v in range(3, 14)} == {Kind.PRODUCE}
    assert {upstream[header(17, v)].kind for v in (0, 1)} == {Kind.SASL_HANDSHAKE}
    assert {upstream[header(36, v)].kind for v in (0, 1, 2)} == {Kind.SASL_AUTHENTICATE}
    assert {upstream[header(3, v)].kind for v in range(14)} == {Kind.RESPONSE}
    assert upstream[header(1, 15)].kind is Kind.FORWARD
    assert upstream[header(0, 9)].rewrite is None
    assert upstream[header(0, 10)].rewrite is not None


def test_share_requests_are_served_here_or_forwarded(local, upstream):
    for key, (lowest, highest) in share_group_apis.OFFER.apis.items():
        for version in range(lowest, highest + 1):
            assert local[header(key, version)].kind is Kind.LOCAL
            assert local[header(key, version)].handler is handler
            forwarded = upstream[header(key, version)]
            assert forwarded.kind is (Kind.RESPONSE if key in (78, 79) else Kind.FORWARD)
            assert (forwarded.amend is not None) == (key == 78)


def test_an_inspected_api_keeps_its_handler_and_its_choice(local):
    route = local[header(16, 5)]
    assert (route.kind, route.handler) == (Kind.INSPECT, handler)
    assert route.serve_here(memoryview(b""))


def test_unserved_share_requests_are_a_programming_error():
    with pytest.raises(LocalProtocolError, match="ShareGroupHeartbeat"):
        build(Offer((share_group_apis.OFFER,)), {})


@pytest.mark.parametrize("version", [5, 6, 32767, -1])
def test_an_unknown_version_of_api_versions_is_served_unread(local, version):
    route = local[header(18, version)]
    assert (route.kind, route.version, route.opaque) == (Kind.LOCAL, version, True)


def test_unknown_apis_pass_only_by_setting(upstream):
    passing = build(Offer(pass_unknown=True), {})
    assert passing[header(4000, 7)].kind is Kind.FORWARD
    assert passing[header(4000, -7)].kind is Kind.REFUSE
    assert passing[header(4, 0)].kind is Kind.REFUSE, "LeaderAndIsr, which Kafka gave up"
    assert passing[header(-4, 0)].kind is Kind.REFUSE
    assert upstream[header(4000, 7)].kind is Kind.REFUSE
