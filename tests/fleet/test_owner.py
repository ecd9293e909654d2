"""The owner's side of a link: clients that are far away, and everything that ends with them."""

from __future__ import annotations

import pytest
from kafka_share_proxy.fleet import owner
from kafka_share_proxy.sharegroups.services import FEATURE
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import RemoteProtocolError, UpstreamLost

from tests.support.far import FarWorld


@pytest.fixture
def world() -> FarWorld:
    return FarWorld()


def request(**fields):
    body = registry.request(76, 1).encode(registry.message("ShareGroupHeartbeatRequest")(group_id="g", member_id="m"))
    values = {"id": 1, "connection_id": 5, "api_key": 76, "api_version": 1, "generation": 1, "client_host": "h"}
    return registry.message("PeerRequest")(**values | {"body": body} | fields)


def outcomes(world: FarWorld) -> list[int]:
    reported = world.wire.held or []
    return [each.outcome for each in reported if type(each).__name__ == "PeerResponse"]


def test_request_without_a_handler_or_room_is_refused_as_by_a_proxy_that_is_not_the_owner(world, monkeypatch):
    world.wire.held = []
    world.owner.receive(request(api_key=0))
    world.owner.receive(request(generation=9))
    monkeypatch.setattr(owner, "REQUESTS_MAX", 0)
    world.owner.receive(request())
    assert outcomes(world) == [1, 1, 1]
    assert world.owner.connections == 0


def test_request_of_a_later_version_is_not_served_and_the_link_continues(world):
    """It is treated as a group without an owner: clients retry until all proxies have the edge's version."""
    world.wire.held = []
    world.owner.receive(request(api_version=99))
    world.owner.receive(request(feature="of a later version"))
    assert outcomes(world) == [1, 1]


def test_request_that_cannot_be_read_ends_the_link(world):
    with pytest.raises(RemoteProtocolError):
        world.owner.receive(request(body=b"\xff"))


def test_error_of_a_handler_is_logged_and_fails_only_its_request(world, monkeypatch):
    async def broken(call):
        raise ZeroDivisionError

    monkeypatch.setattr(world.owner._carried._features[FEATURE], "_handlers", {76: broken})
    world.wire.held = []
    world.owner.receive(request())
    assert outcomes(world) == [2]
    assert world.notes[-1][0] == "handler-failed"


def test_connections_have_ids_that_no_other_link_has(world):
    """Sessions and reservations belong to connections by number."""
    world.wire.held = []
    world.owner.receive(request())
    first = world.owner._connections[5]
    world.owner.lost("cut")
    world.link()
    world.wire.held = []
    world.owner.receive(request())
    assert world.owner._connections[5].id != first.id
    response = first.send_request(3, 0, b"")
    with pytest.raises(UpstreamLost):
        response.result()


def test_messages_about_unknown_requests_are_ignored(world):
    for name in ("PeerQueryResponse", "PeerClosed", "PeerCancel", "PeerPing"):
        world.owner.receive(registry.message(name)())
    for name in ("PeerResponse", "PeerForget", "PeerHoldings", "PeerPing"):
        world.peer.receive(registry.message(name)())


def test_callback_of_one_client_that_raises_ends_only_its_own_requests(world, monkeypatch):
    """Its own proxy is notified, which ends its connection; the link and all other clients continue."""

    async def waits(call):
        response = call.connection.send_request(3, 0, b"")
        if call.correlation_id == 1:
            response.on_settled(fails)
        return bytes(await response)

    def fails():
        raise ZeroDivisionError

    monkeypatch.setattr(world.owner._carried._features[FEATURE], "_handlers", {76: waits})
    world.wire.held = []
    for number in (1, 2):
        world.owner.receive(request(id=number, connection_id=number, correlation_id=number))
    second = world.owner._connections[2]
    queries = [each for each in world.wire.held if type(each).__name__ == "PeerQuery"]
    for query in queries:
        world.owner.receive(registry.message("PeerQueryResponse")(id=query.id, body=b"told", reason=None))
    assert outcomes(world) == [2, 0]
    assert world.owner._connections == {2: second}
    assert [name for name, _ in world.notes] == ["callback-failed"]
