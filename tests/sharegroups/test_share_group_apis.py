"""The APIs of share groups: what is declared of each, and what is derived from it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.forwarding.dispatch import route_table
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs, Served
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.dispatch.routes import Kind, Routes
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.sharegroups.apis import k42_delete_groups
from kafka_share_proxy.sharegroups.apis.group_configs import GROUP
from kafka_share_proxy.sharegroups.apis.group_resources import GROUPS_MAX
from kafka_share_proxy.sharegroups.share_group_apis import APIS
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import World

WORLD = World()
WORLD.services.coordinator.add_group("shared")
SERVED = share_group_apis.served(WORLD.services)
ALWAYS = {16, *share_group_apis.OFFER.apis}
"""Served here whatever the request contains."""


def routes() -> tuple[Routes, dict[int, Served]]:
    book = AddressBook(20000, "h", lambda *_: True)
    return route_table.build(book, EffectiveVersions(Offer((share_group_apis.OFFER,))), Limits(), SERVED), SERVED


def test_an_api_is_declared_once() -> None:
    assert len({api.key for api in APIS}) == len(APIS)


def test_the_share_handlers_serve_exactly_what_is_offered() -> None:
    assert {api.key: api.versions for api in APIS if api.versions is not None} == dict(share_group_apis.OFFER.apis)


def test_every_handler_has_all_versions_of_its_api() -> None:
    """ListGroups and the share group APIs are always served here; of the others the selected requests."""
    built, served = routes()
    for key, entry in served.items():
        api_routes = [route for route in built.values() if route.key == key]
        lowest, highest = registry.versions(key)
        assert sorted(route.version for route in api_routes) == list(range(lowest, highest + 1))
        assert {route.handler for route in api_routes} == {entry.handler}
        assert {route.kind for route in api_routes} == {Kind.LOCAL if key in ALWAYS else Kind.INSPECT}


def test_no_handler_takes_what_the_plane_must_see_itself() -> None:
    _, served = routes()
    special = {api.key for api in route_table.FORWARDED if api.kind is not None or api.repair is not None}
    assert not set(served) & special - set(share_group_apis.OFFER.apis)


@given(st.sampled_from(sorted(SERVED)), st.data(), st.binary(max_size=80))
def test_an_unreadable_request_is_forwarded(key: int, data: st.DataObject, noise: bytes) -> None:
    """For any bytes, the match returns a result and never fails; without other criteria, the broker judges a truncated
    request.
    """
    wants = SERVED[key].wants
    if wants is None:
        return
    low, high = registry.versions(key)
    version = data.draw(st.integers(low, high))
    serve_here = wants.matcher(key, version)
    start = key.to_bytes(2, "big") + version.to_bytes(2, "big")
    assert serve_here(memoryview(start + noise)) in (True, False)
    assert SERVED[key].picks or not serve_here(memoryview(start + bytes(4) + b"\xff\xff"))


@pytest.mark.parametrize("api", [api for api in APIS if api.needs is not Needs.NOTHING], ids=lambda api: str(api.key))
def test_apis_that_need_state_declare_their_response_without_it(api: DeclaredApi[Any]) -> None:
    """A response of its own API, in every version, to a request that names nothing."""
    assert api.respond_unavailable is not None
    name = registry.API_KEYS[api.key]
    request = registry.message(f"{name}Request")()
    for field in request.FIELDS:
        if getattr(request, field) is None and field in ("groups", "resources", "topics", "group_ids"):
            setattr(request, field, [])
    call = Call(api.key, 0, 1, None, request, WORLD.connect())
    task: Task[Any] = Task(api.respond_unavailable(call, ErrorCode.COORDINATOR_NOT_AVAILABLE, "text"), lambda _: None)
    task.start()
    assert task.error is None
    assert isinstance(task.value, Message)
    assert type(task.value).__name__ == f"{name}Response"
    low, high = registry.versions(api.key)
    for version in range(low, high + 1):
        assert registry.response(api.key, version).encode(task.value) is not None


@pytest.mark.parametrize("api", [api for api in APIS if api.splits is not None], ids=lambda api: str(api.key))
def test_the_lists_are_those_of_the_messages(api: DeclaredApi[Any]) -> None:
    """The request and the response have them; every list of groups has a limit."""
    name, splits = registry.API_KEYS[api.key], api.splits
    assert splits is not None
    assert splits.field in registry.message(f"{name}Request").__slots__
    assert splits.responses in registry.message(f"{name}Response").__slots__
    assert api.groups_max is not None


def test_too_many_groups_are_refused_one_by_one(world: Any) -> None:
    """42, and no request goes upstream."""
    message = registry.message("DescribeConfigsRequest")
    count = GROUPS_MAX + 1
    resources = [
        message.DescribeConfigsResource(resource_type=GROUP, resource_name=f"g{n}", configuration_keys=None)
        for n in range(count)
    ]
    response = world.call(32, 4, resources=resources)
    assert {result.error_code for result in response.results} == {ErrorCode.INVALID_REQUEST}
    assert [result.resource_name for result in response.results] == [f"g{n}" for n in range(count)]
    assert world.broker.requested == []
    names = [f"g{n}" for n in range((k42_delete_groups.API.groups_max or 0) + 1)]
    world.group("g1")
    codes = {result.error_code for result in world.call(42, 2, groups_names=names).results}
    assert codes == {ErrorCode.INVALID_REQUEST}
    assert world.broker.requested == []
