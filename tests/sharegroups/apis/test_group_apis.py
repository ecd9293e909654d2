"""Which requests about groups come to us at all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.forwarding import route_table
from proxy.forwarding.address_book import AddressBook
from proxy.forwarding.offered_versions import SHARE_APIS, EffectiveVersions, Offer
from proxy.forwarding.routes import Kind, header
from proxy.sharegroups import owner_routing
from proxy.sharegroups.apis import group_apis
from proxy.wire import registry
from proxy.wire.errors import ErrorCode
from proxy.wire.values import Limits
from tests.support.ports import World

WORLD = World()
WORLD.services.coordinator.add_group("shared")
SERVED = group_apis.served(WORLD.services)


async def nobody(call):
    """A handler that answers nothing."""


@pytest.fixture(scope="module")
def routes():
    book = AddressBook(20000, "proxy.example", lambda *_: True)
    served = SERVED | {key: route_table.Served(nobody) for key in SHARE_APIS}
    return route_table.build(book, EffectiveVersions(Offer(serve_share=True)), Limits(), served)


@pytest.mark.parametrize("key", sorted(SERVED))
def test_every_version_has_its_route(routes, key):
    """ListGroups always comes to us; of the others those requests that are picked."""
    low, high = registry.versions(key)
    for version in range(low, high + 1):
        route = routes[header(key, version)]
        assert route.handler is SERVED[key].handler
        assert route.kind is (Kind.LOCAL if key == 16 else Kind.INSPECT)


@given(st.sampled_from(sorted(SERVED)), st.data(), st.binary(max_size=80))
def test_a_request_nobody_can_read_is_forwarded(key, data, noise):
    """Whatever bytes come, the look at them says yes or no and never fails; where it is all there is to tell by, a
    request cut short is the broker's to judge."""
    serve_here = SERVED[key].serve_here
    if serve_here is None:
        return
    low, high = registry.versions(key)
    version = data.draw(st.integers(low, high))
    start = key.to_bytes(2, "big") + version.to_bytes(2, "big")
    assert serve_here(memoryview(start + noise)) in (True, False)
    assert SERVED[key].picks or not serve_here(memoryview(start + bytes(4) + b"\xff\xff"))


def test_too_many_groups_are_refused_one_by_one(world: Any) -> None:
    """42, and nothing is asked upstream."""
    message = registry.message("DescribeConfigsRequest")
    count = owner_routing.GROUPS_MAX[32] + 1
    resources = [
        message.DescribeConfigsResource(resource_type=32, resource_name=f"g{n}", configuration_keys=None)
        for n in range(count)
    ]
    answer = world.call(32, 4, resources=resources)
    assert {result.error_code for result in answer.results} == {ErrorCode.INVALID_REQUEST}
    assert [result.resource_name for result in answer.results] == [f"g{n}" for n in range(count)]
    assert world.broker.asked == []
    names = [f"g{n}" for n in range(owner_routing.GROUPS_MAX[42] + 1)]
    world.group("g1")
    codes = {result.error_code for result in world.call(42, 2, groups_names=names).results}
    assert codes == {ErrorCode.INVALID_REQUEST}
    assert world.broker.asked == []
