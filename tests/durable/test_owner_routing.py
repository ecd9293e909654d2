"""Share requests while state is loaded, owned by another proxy, or unreadable: the responses that stock clients
tolerate best.
"""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.forwarding.dispatch.declared_api import HOLD_MAX_S
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Promise, Task, settled
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import World, responded

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
REQUESTS: dict[int, dict[str, Any]] = {
    76: {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["t"]},
    77: {"group_ids": ["g"]},
    78: {"group_id": "g", "member_id": "m", "share_session_epoch": 3, "topics": [], "forgotten_topics_data": []},
    79: {"group_id": "g", "member_id": "m", "share_session_epoch": 3, "topics": []},
    90: {
        "groups": [
            registry.message("DescribeShareGroupOffsetsRequest").DescribeShareGroupOffsetsRequestGroup(
                group_id="g", topics=None
            )
        ]
    },
    42: {"groups_names": ["g"]},
    91: {"group_id": "g", "topics": []},
    92: {"group_id": "g", "topics": []},
    32: {
        "resources": [
            registry.message("DescribeConfigsRequest").DescribeConfigsResource(resource_type=32, resource_name="g")
        ]
    },
    33: {
        "resources": [
            registry.message("AlterConfigsRequest").AlterConfigsResource(
                resource_type=32, resource_name="g", configs=[]
            )
        ]
    },
    44: {
        "resources": [
            registry.message("IncrementalAlterConfigsRequest").AlterConfigsResource(
                resource_type=32, resource_name="g", configs=[]
            )
        ]
    },
}
VERSIONS = {76: 1, 77: 1, 78: 2, 79: 2, 90: 1, 91: 0, 92: 0, 42: 2, 32: 4, 33: 2, 44: 1}
TOOLS = sorted(VERSIONS.keys() - {76, 78, 79})


@pytest.fixture
def world() -> World:
    return World()


class Sent:
    """A request on its way through the gate."""

    def __init__(self, world: World, key: int, **fields: Any) -> None:
        self.key, self.version = key, VERSIONS[key]
        message = registry.message(f"{registry.API_KEYS[key]}Request")(**(REQUESTS[key] | fields))
        call = Call(key, self.version, 7, "c", message, world.member().connection)
        handler = share_group_apis.served(world.services)[key].handler
        self.task: Task[bytes | None] = Task(responded(handler, call), lambda _: None)
        self.task.start()

    @property
    def response(self) -> Any:
        assert self.task.finished
        if self.task.error is not None:
            raise self.task.error
        return frames.decode_response(self.key, self.version, memoryview(bytes(self.task.value or b""))[4:])[1]


def wait_out(world: World) -> None:
    world.timers.advance(HOLD_MAX_S + 0.1)


def wait_out_tools(world: World) -> None:
    world.timers.advance(world.services.options.state_wait_s + 0.1)


def codes(response: Any) -> set[int]:
    """The error codes of a response: of the whole, or of each group or resource."""
    entries = [entry for name in ("groups", "results", "responses") for entry in getattr(response, name, None) or ()]
    return {entry.error_code for entry in (entries or [response])}


def test_a_heartbeat_gets_a_retriable_error(world):
    world.services.gate.close(LOADING, "loading")
    sent = Sent(world, 76)
    assert not sent.task.finished, "it waits for a while"
    wait_out(world)
    assert (sent.response.error_code, sent.response.error_message) == (LOADING, "loading")


@pytest.mark.parametrize("key", TOOLS)
def test_a_tool_waits_longer_for_state_that_is_being_loaded(world, key):
    """The Java admin client takes 14 and 15 for an error of these requests."""
    world.services.gate.close(LOADING, "loading")
    sent = Sent(world, key)
    wait_out(world)
    assert not sent.task.finished
    world.timers.advance(world.services.options.state_wait_s - HOLD_MAX_S - 1)
    assert not sent.task.finished
    world.services.gate.open()
    assert sent.task.finished
    assert world.timers.planned == 0


@pytest.mark.parametrize("key", TOOLS)
def test_a_tool_finally_gets_a_retriable_error(world, key):
    world.services.gate.close(LOADING, "loading")
    sent = Sent(world, key)
    wait_out_tools(world)
    assert codes(sent.response) == {LOADING}


@pytest.mark.parametrize("key", TOOLS)
def test_a_tool_does_not_wait_for_a_proxy_that_serves_no_share_groups_now(world, key):
    """A second proxy that waits for its turn knows that it will not have it soon."""
    world.services.gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, "another proxy serves them")
    sent = Sent(world, key)
    wait_out(world)
    assert codes(sent.response) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_a_waiting_tool_gets_an_early_error_when_another_proxy_owns_the_state(world):
    world.services.gate.close(LOADING, "loading")
    sent = Sent(world, 91)
    wait_out(world)
    assert not sent.task.finished
    world.services.gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, "another proxy serves them")
    assert codes(sent.response) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_each_group_of_the_request_gets_the_code(world):
    group = registry.message("DescribeShareGroupOffsetsRequest").DescribeShareGroupOffsetsRequestGroup
    world.services.gate.close(LOADING, "loading")
    described = Sent(world, 77, group_ids=["a", "b", "a"])
    offsets = Sent(world, 90, groups=[group(group_id="a", topics=None)])
    wait_out_tools(world)
    assert [(g.group_id, g.error_code) for g in described.response.groups] == [("a", LOADING), ("b", LOADING)]
    assert [(g.group_id, g.error_code) for g in offsets.response.groups] == [("a", LOADING)]


@pytest.mark.parametrize("key", [78, 79])
def test_share_sessions_are_to_be_opened_anew(world, key):
    """14, 15 and 16 in a fetched partition make the Java client throw (sharegroups/README.md rule 17)."""
    world.services.gate.close(LOADING, "loading")
    sent = Sent(world, key)
    wait_out(world)
    assert sent.response.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert not sent.response.responses


@pytest.mark.parametrize("key", [78, 79])
def test_acknowledgements_in_flight_when_the_state_is_lost_are_reported_as_unknown(world, key):
    """They may be stored or not; nothing else is said of the session."""
    topic = world.cluster.create("t")
    request = registry.message(f"{registry.API_KEYS[key]}Request")
    one, its_partition = (
        (request.FetchTopic, request.FetchPartition)
        if key == 78
        else (request.AcknowledgeTopic, request.AcknowledgePartition)
    )
    batch = request.AcknowledgementBatch(first_offset=3, last_offset=4, acknowledge_types=[1])
    partition = its_partition(partition_index=0, acknowledgement_batches=[batch])
    world.cluster.held.add(3)  # the lookup of the topic is in flight
    sent = Sent(world, key, topics=[one(topic_id=topic.topic_id, partitions=[partition])])
    assert not sent.task.finished
    world.services.gate.close(LOADING, "loading")
    ((entry,),) = [each.partitions for each in sent.response.responses]
    assert sent.response.error_code == ErrorCode.NONE
    assert entry.partition_index == 0
    code = entry.acknowledge_error_code if key == 78 else entry.error_code
    assert code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_request_continues_when_the_state_is_loaded_in_time(world):
    world.services.gate.close(LOADING, "loading")
    sent = Sent(world, 79)
    world.services.gate.open()
    assert sent.response.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert sent.response.error_message is None, "by the handler, not by the gate"
    assert world.timers.planned == 0


def test_a_decision_from_before_the_gate_closed_is_not_returned(world):
    """A machine that slept beyond its lease wakes in the middle of a request."""
    topic = world.cluster.create("t")
    world.configure("g", share_auto_offset_reset="earliest")
    world.cluster.held.add(3)  # the lookup of the topic is in flight
    sent = Sent(world, 76)
    assert not sent.task.finished
    world.services.gate.lease = lambda: False
    world.cluster.release()
    world.timers.advance(HOLD_MAX_S)
    assert sent.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert topic.logs[0].end == 0


def test_a_decision_is_returned_once_the_lease_is_renewed(world):
    """The group of proxies was away as well: a broker crashed. The response waits for it, and no longer."""
    world.cluster.create("t")
    world.cluster.held.add(3)
    sent = Sent(world, 76)
    world.services.gate.lease = lambda: False
    world.cluster.release()
    world.timers.advance(HOLD_MAX_S / 2)
    assert not sent.task.finished
    world.services.gate.lease = lambda: True
    world.services.gate.wake()
    assert sent.response.error_code == 0


def test_a_decision_is_not_returned_when_the_gate_closes_while_the_lease_is_waited_for(world):
    """Another proxy is the owner, or may have been."""
    world.cluster.create("t")
    world.cluster.held.add(3)
    sent = Sent(world, 76)
    world.services.gate.lease = lambda: False
    world.cluster.release()
    world.services.gate.close(LOADING, "loading")
    assert sent.task.finished
    world.services.gate.lease = lambda: True
    world.services.gate.open()
    assert sent.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_decision_is_not_returned_if_the_gate_was_closed_and_opened_meanwhile(world):
    world.cluster.create("t")
    world.cluster.held.add(3)
    sent = Sent(world, 76)
    world.services.gate.close(LOADING, "loading")
    world.services.gate.open()
    world.cluster.release()
    assert sent.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_groups_of_an_unreadable_state_partition_are_refused(world):
    world.services.gate.refused[state_partition("g")] = "written by a newer release"
    assert Sent(world, 76).response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert Sent(world, 79).response.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    other = next(f"g{n}" for n in range(100) if state_partition(f"g{n}") != state_partition("g"))
    assert Sent(world, 77, group_ids=[other]).response.groups[0].error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("key", [77, 91, 92])
def test_a_tool_at_a_standby_gets_a_response_immediately(world, key):
    """The error has a code that no client retries, and names the proxy that serves share groups."""
    world.services.gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, "another proxy serves")
    world.services.gate.standby = "another proxy serves"
    response = Sent(world, key).response
    entry = response.groups[0] if key == 77 else response
    assert (entry.error_code, entry.error_message) == (ErrorCode.POLICY_VIOLATION, "another proxy serves")


def test_members_wait_for_a_standby_to_take_over(world):
    """They come again by themselves; once it has taken over, tools are served as well."""
    world.services.gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, "another proxy serves")
    world.services.gate.standby = "another proxy serves"
    beat = Sent(world, 76)
    assert not beat.task.finished
    world.services.gate.open()
    assert beat.response.error_code == 0
    assert Sent(world, 77).response.groups[0].error_code == 0


class Owner:
    """Another worker, which owns everything. See group_owners.Fleet and Peer."""

    def __init__(self) -> None:
        self.groups: dict[str, None] = {}
        self.members: dict[str, Any] = {}
        self.moving: Promise[None] | None = None
        self.moved: list[int] = []
        self.carried: list[int] = []

    def owner(self, _partition: int) -> Owner:
        return self

    def owners(self, _partitions: Any) -> list[Owner]:
        return [self]

    def take_client(self, call: Call) -> Promise[None] | None:
        self.moved.append(call.key)
        return self.moving

    def serve(self, call: Call, _feature: str) -> Promise[bytes | None]:
        self.carried.append(call.key)
        return settled(b"carried")

    def give_up(self, _response: Promise[bytes | None]) -> None: ...


@pytest.mark.parametrize("key", [76, 78, 79])
def test_a_member_moves_to_the_owner_and_is_carried_only_if_it_is_refused(world: World, key: int) -> None:
    owner = world.services.fleet = Owner()
    owner.moving = Promise()
    world.services.gate.close(LOADING, "elsewhere")
    sent = Sent(world, key)
    assert (owner.moved, owner.carried, sent.task.finished) == ([key], [], False)
    owner.moving.set(None)
    assert (owner.carried, sent.task.value) == ([key], b"carried")


@pytest.mark.parametrize("key", TOOLS)
def test_a_tool_stays_where_it_is(world: World, key: int) -> None:
    owner = world.services.fleet = Owner()
    world.services.gate.close(LOADING, "elsewhere")
    Sent(world, key)
    assert owner.moved == []
