"""A client's proxy that does not own its group: what goes to the owner, what stays, and what becomes of a lost link."""

from __future__ import annotations

import pytest
from kafka_share_proxy.fleet import edge
from kafka_share_proxy.fleet.group_owners import CommandResult, PeerLost
from kafka_share_proxy.fleet.peer_protocol import MESSAGES
from kafka_share_proxy.forwarding.apis.k32_broker_addresses import BROKER
from kafka_share_proxy.forwarding.dispatch.declared_api import HOLD_MAX_S
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.reading.far_records import HeldRecords
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.sharegroups.apis.group_configs import GROUP
from kafka_share_proxy.sharegroups.services import FEATURE
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError
from kafka_share_proxy.wire.values import Address

from tests.support.far import FarWorld
from tests.support.ports import acquired

LOST, NOT_FOUND = ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.SHARE_SESSION_NOT_FOUND


@pytest.fixture
def world() -> FarWorld:
    far_world = FarWorld()
    far_world.configure("g", share_auto_offset_reset="earliest")
    return far_world


def test_records_stay_at_the_edge_and_are_dropped_once_they_are_used(world):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 100, value=b"v" * 1000)
    member = world.member()
    sizes: list[int] = []
    encode = world.wire.ends[0].send
    world.wire.ends[0].send = lambda message: sizes.append(len(data := encode(message))) or data
    response = member.fetch(topic, max_records=50)
    assert acquired(response) == [(0, 99, 1)]
    assert len(response.responses[0].partitions[0].records) > 100_000
    assert max(sizes) < 10_000
    assert member.acknowledge({(topic.topic_id, 0): [(0, 99, [1])]}).error_code == 0
    assert world.peer.edges[FEATURE].held.bytes > 0
    world.timers.advance(10)
    assert world.peer.edges[FEATURE].held.bytes == 0
    assert "PeerForget" in world.wire.sent


def test_second_fetch_is_served_from_what_this_proxy_has(world):
    """The owner knows the batches; no second request is sent."""
    topic = world.cluster.create("t")
    for _ in range(4):
        world.cluster.produce(topic, 10)
    member = world.member()
    got = [acquired(member.fetch(topic, max_records=10)) for _ in range(4)]
    assert got == [[(n * 10, n * 10 + 9, 1)] for n in range(4)]
    assert world.cluster.count(1) == 1


def test_member_at_the_owner_does_not_get_what_another_proxy_has(world):
    topic = world.cluster.create("t")
    for _ in range(2):
        world.cluster.produce(topic, 10)
    assert acquired(world.member().fetch(topic, max_records=10)) == [(0, 9, 1)]
    at_owner = world.member(member_id="m2")
    world.served, world.edge = share_group_apis.served(world.services), world.services
    response = at_owner.fetch(topic, max_records=10)
    assert acquired(response) == [(10, 19, 1)]
    assert len(response.responses[0].partitions[0].records) > 10
    assert world.cluster.count(1) == 2


def test_lost_link_ends_sessions_and_releases_records_with_their_delivery_counted(world):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = world.member()
    assert acquired(member.fetch(topic)) == [(0, 9, 1)]
    waiting = world.member(member_id="m2")
    reply = waiting.send_fetch(topic, wait_ms=5000)
    assert not reply.done
    world.wire.cut()
    assert reply.message.error_code == NOT_FOUND
    assert len(world.services.coordinator.sessions) == 0
    assert world.services.reads.waiting == 0
    world.link()
    assert member.acknowledge({(topic.topic_id, 0): [(0, 9, [1])]}).error_code == NOT_FOUND
    member.epoch = 0
    assert acquired(member.fetch(topic)) == [(0, 9, 2)]


def test_after_a_lost_link_requests_wait_for_a_new_one_and_are_refused_in_the_end(world):
    world.wire.cut()
    world.edge_fleet.peer = None
    member = world.member()
    reply = member.send_heartbeat(0, ["t"])
    assert not reply.done
    world.timers.advance(HOLD_MAX_S + 0.1)
    assert reply.message.error_code == LOST
    reply = member.send_heartbeat(0, ["t"])
    world.link()
    world.edge.gate.wake()
    assert reply.message.error_code == ErrorCode.NONE
    assert world.timers.planned <= 2


def test_a_former_owner_is_queried_again_for_a_while(world):
    world.services.gate.closing(world.services.gate.all, LOST, "moves")
    reply = world.member().send_heartbeat(0, ["t"])
    world.timers.advance(0.3)
    assert not reply.done
    world.services.gate.open()
    world.timers.advance(0.2)
    assert reply.message.error_code == ErrorCode.NONE
    world.services.gate.closing(world.services.gate.all, LOST, "moves")
    reply = world.member().send_heartbeat(0, ["t"])
    for _ in range(40):
        world.timers.advance(0.1)
    assert reply.message.error_code == LOST


def test_owner_that_does_not_know_an_assignment_serves_nothing_by_it(world):
    """In the table that it does not know, another proxy may own the group."""
    world.generations[0] = 2
    reply = world.member().send_heartbeat(0, ["t"])
    assert not reply.done
    world.generations[1] = 2
    world.timers.advance(0.2)
    assert reply.message.error_code == ErrorCode.NONE


def test_records_of_a_client_that_disconnects_are_released(world):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = world.member()
    member.fetch(topic)
    member.connection.close()
    assert world.owner.connections == 0
    assert world.peer.waiting == 0
    assert acquired(world.member(member_id="m2").fetch(topic)) == [(0, 9, 2)]


def test_client_that_disconnects_during_a_request_leaves_no_state(world):
    topic = world.cluster.create("t")
    member = world.member()
    reply = member.send_fetch(topic, wait_ms=5000)
    assert not reply.done
    member.connection.close()
    world.cluster.release()
    assert (world.peer.waiting, world.owner.connections) == (0, 0)
    world.assert_idle()


def test_broker_that_hangs_up_ends_the_connection(world):
    topic = world.cluster.create("t")
    world.cluster.held.add(3)
    member = world.member()
    reply = member.send_fetch(topic)
    member.connection.lose_upstream()
    with pytest.raises(Exception, match="owner"):
        _ = reply.message


def test_records_that_had_to_be_dropped_end_the_session_and_are_given_back(world):
    world.peer.edges[FEATURE].held = HeldRecords(1)
    topic, other = world.cluster.create("t"), world.cluster.create("u")
    world.cluster.produce(topic, 10)
    world.cluster.produce(other, 10)
    member = world.member()
    response = member.fetch(topic, other)
    assert response.error_code == NOT_FOUND
    assert len(world.services.coordinator.sessions) == 0
    world.peer.edges[FEATURE].held = HeldRecords(1 << 20)
    world.timers.advance(3)
    member.epoch = 0
    assert acquired(member.fetch(topic, other), topic) == [(0, 9, 2)]


def test_without_room_for_records_the_response_finally_has_none():
    world = FarWorld(limits=Limits(local_answers_total_bytes=8 << 20))
    world.configure("g", share_auto_offset_reset="earliest")
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = world.member()
    world.edge.responses.add_unsent(8 << 20)
    reply = member.send_fetch(topic, wait_ms=700)
    world.timers.advance(0.5)
    assert not reply.done
    world.timers.advance(0.3)
    assert not acquired(reply.message)
    assert world.edge.responses.refusals == 1
    world.edge.responses.sent(8 << 20)
    assert acquired(member.fetch(topic)) == [(0, 9, 1)]


def test_waiting_requests_are_bounded(world, monkeypatch):
    monkeypatch.setattr(edge, "REQUESTS_MAX", 1)
    topic = world.cluster.create("t")
    assert not world.member().send_fetch(topic, wait_ms=5000).done
    assert world.member(member_id="m2").send_fetch(topic).message.error_code == NOT_FOUND


def test_groups_of_the_owner_are_known(world):
    world.member().heartbeat(0, ["t"])
    assert world.edge.holds("g") is False
    world.owner.send_groups()
    assert world.edge.holds("g")
    world.services.coordinator.remove_group("g")
    world.owner.send_groups()
    assert not world.edge.holds("g")


def test_settings_of_a_broker_in_the_same_request_show_the_address_of_this_proxy(world):
    """The owner of the group queries the broker, and knows only its own addresses."""
    message = registry.message("DescribeConfigsResponse")
    listener = message.DescribeConfigsResourceResult(name="listeners", value="A://10.0.0.1:9092")

    def response(_key, _version, request):
        (requested,) = request.resources
        kind, name = requested.resource_type, requested.resource_name
        configs = [listener] if kind == BROKER else []
        return message(results=[message.DescribeConfigsResult(resource_type=kind, resource_name=name, configs=configs)])

    world.cluster.respond_unscripted = response
    world.edge.book = AddressBook(9300, "edge.example", lambda *_: True)
    for book in (world.edge.book, world.services.book):
        book.advertise(1, Address("10.0.0.1", 9092))
    resource_class = registry.message("DescribeConfigsRequest").DescribeConfigsResource
    resources = [resource_class(resource_type=kind, resource_name=name) for kind, name in ((BROKER, "1"), (GROUP, "g"))]
    broker, group = world.send_request(32, 4, resources=resources).results
    assert [entry.value for entry in broker.configs] == ["A://edge.example:9301"]
    assert group.error_code == 0


@pytest.mark.parametrize("hook", ["completed", "to_owner"])
def test_internal_error_about_one_client_fails_its_requests_and_not_the_link(world, monkeypatch, hook):
    def fails(*_):
        raise ZeroDivisionError

    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member, other = world.member(), world.member(member_id="m2")
    with monkeypatch.context() as patch:
        patch.setattr(world.peer.edges[FEATURE], hook, fails)
        reply = member.send_fetch(topic)
        with pytest.raises(ZeroDivisionError):
            _ = reply.message
    assert world.peer.waiting == 0
    member.connection.close()
    assert acquired(other.fetch(topic))[0][:2] == (0, 9)


def test_unreadable_response_ends_the_link_and_refuses_the_requester(world):
    topic = world.cluster.create("t")
    member = world.member()
    world.wire.held = []
    reply = member.send_fetch(topic)
    (number,) = world.peer._requests
    with pytest.raises(RemoteProtocolError):
        world.peer.receive(registry.message("PeerResponse")(id=number, outcome=edge.RESPONDED, frame=b"\xff"))
    assert reply.message.error_code == NOT_FOUND


def unknown(kind: str, number: int) -> object:
    """How an earlier version responds."""
    return registry.message("PeerUnknown")(kind=MESSAGES.index(kind), id=number)


@pytest.mark.parametrize(
    ("kind", "requests"),
    [
        ("PeerHoldingsRequest", lambda peer: peer.holdings()),
        ("PeerGroupKnownRequest", lambda peer: peer.knows("f", "g")),
        ("PeerCommand", lambda peer: peer.command("f", ["GET"])),
    ],
)
def test_request_that_the_owner_does_not_know_fails_and_the_link_continues(world, kind, requests):
    world.wire.held = []
    promise = requests(world.peer)
    world.peer.receive(unknown("PeerPing", 1))
    world.peer.receive(registry.message("PeerUnknown")(kind=120, id=1))
    assert not promise.done
    world.peer.receive(unknown(kind, 1))
    with pytest.raises(PeerLost, match="earlier version"):
        promise.result()
    world.peer.receive(unknown(kind, 1))


def test_command_is_run_at_the_owner_and_its_result_returned(world):
    world.carried.add(world.carried_shares, command=lambda words: CommandResult(202, {"phase": " ".join(words)}))
    result = world.peer.command(FEATURE, ["POST", "g", "hand-over"])
    assert result.result() == (202, {"phase": "POST g hand-over"})
    world.wire.held = []
    lost = world.peer.command(FEATURE, ["GET", "g"])
    world.wire.cut()
    with pytest.raises(PeerLost):
        lost.result()
    with pytest.raises(PeerLost):
        world.peer.command(FEATURE, ["GET", "g"]).result()


def test_result_of_a_command_that_is_not_json_is_refused(world):
    world.wire.held = []
    result = world.peer.command(FEATURE, ["GET", "g"])
    with pytest.raises(RemoteProtocolError):
        world.peer.receive(registry.message("PeerCommandResult")(id=1, status=200, body="{"))
    with pytest.raises(PeerLost):
        result.result()
