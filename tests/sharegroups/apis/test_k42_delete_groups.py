"""DeleteGroups: ours here, the others by the broker."""

from __future__ import annotations

import pytest
from kafka_share_proxy.durable.interfaces import RESPONSE_MAX_S
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.model.sessions import SessionKey
from kafka_share_proxy.sharegroups.state.state_records import StateKey
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

DELETE = 42
T = b"t" * 16


def upstream(version, request):
    """A broker that has `classic` and nothing else."""
    message = registry.message("DeleteGroupsResponse")
    return message(
        results=[
            message.DeletableGroupResult(group_id=name, error_code=0 if name == "classic" else 69)
            for name in request.groups_names
        ]
    )


@pytest.fixture(autouse=True)
def broker(world):
    world.broker.responses[DELETE] = upstream


def codes(response):
    return {result.group_id: result.error_code for result in response.results}


@pytest.mark.parametrize("version", range(4))
def test_a_mixed_request_is_split(world, version):
    """Item 69: 68 with members, 0 when empty, and the broker's response for the rest, each id once."""
    world.group("empty")
    world.group("full", "member")
    response = world.call(DELETE, version, groups_names=["full", "classic", "empty", "absent", "full"])
    assert codes(response) == {"full": 68, "empty": 0, "classic": 0, "absent": 69}
    assert len(response.results) == 4
    assert [request.groups_names for request in world.broker.requests(DELETE)] == [["classic", "absent"]]
    assert set(world.services.coordinator.groups) == {"full"}


def test_only_ours_requests_no_deletion_upstream(world):
    """The broker gets only the query of the right."""
    world.group("empty")
    assert codes(world.call(DELETE, 2, groups_names=["empty"])) == {"empty": 0}
    assert world.broker.requests(DELETE) == []
    assert not world.serves(DELETE, 2, groups_names=["empty"])


def test_without_the_right_nothing_is_deleted(world):
    """30 for DELETE on the group."""
    world.group("empty")
    world.broker.denied.add(("DELETE", "empty"))
    assert codes(world.call(DELETE, 2, groups_names=["empty"])) == {"empty": 30}
    assert "empty" in world.services.coordinator.groups


def test_everything_but_the_settings_is_deleted(world):
    """Share partitions, sessions and stored state go with the group; its settings stay (they exist without it)."""
    world.group("shared")
    world.group("other")
    coordinator, journal = world.services.coordinator, world.services.journal
    for group_id in ("shared", "other"):
        coordinator.sessions.fetch(SessionKey(group_id, "m", 1), 0, 1, [TopicIdPartition(T, 0)], (), has_acks=False)
        journal.append([(StateKey("partition", group_id, T, 0), b"x"), (StateKey("group", group_id), b"x")])
        key = ShareKey(group_id, T, 0)
        coordinator.add_share(key, coordinator.new_partition(key, 0), 1)
    coordinator.store_settings("shared", {"share.isolation.level": "read_committed"})
    world.call(DELETE, 2, groups_names=["shared"])
    assert [key.group_id for key, _ in coordinator.shares()] == ["other"]
    assert len(coordinator.sessions) == 1
    assert {key.group_id for key in journal.values} == {"other"}
    assert coordinator.settings("shared").read_committed


def test_a_deletion_that_cannot_be_stored_is_no_success(world):
    """The client gets a retriable error, and the group still exists."""
    world.group("shared")

    world.refuse_writes()
    assert codes(world.call(DELETE, 2, groups_names=["shared"])) == {"shared": 15}
    assert "shared" in world.services.coordinator.groups


def slow_world(world, *groups):
    """`world` with a journal that waits, and these groups, each with the state of one share partition."""
    journal = world.slow()
    journal.slow = False
    for group_id in groups:
        world.group(group_id)
        journal.append([(StateKey("partition", group_id, T, 0), b"x"), (StateKey("group", group_id), b"x")])
        key = ShareKey(group_id, T, 0)
        coordinator = world.services.coordinator
        coordinator.add_share(key, coordinator.new_partition(key, 0), 1)
    journal.slow = True
    return journal


def test_a_deletion_with_unknown_outcome_continues(world):
    """15 in time; a repeated request waits for the same deletion, and once it is stored the group is gone."""
    journal = slow_world(world, "one", "two")
    reply = world.send(DELETE, 2, groups_names=["one", "two"])
    world.timers.advance(RESPONSE_MAX_S - 0.1)
    assert not reply.done
    world.timers.advance(0.2)
    assert codes(reply.message) == {"one": 15, "two": 15}
    assert set(world.services.coordinator.groups) == {"one", "two"}
    again = world.send(DELETE, 2, groups_names=["one"])
    assert len(journal.appends) == 2
    for _ in range(4):
        journal.confirm()
    assert codes(again.message) == {"one": 0}
    assert (dict(world.services.coordinator.groups), dict(journal.values)) == ({}, {})
    assert world.services.changes.deletions == {}


def test_a_deletion_is_carried_out_though_the_client_left(world):
    journal = slow_world(world, "one")
    world.send(DELETE, 2, groups_names=["one"]).task.cancel()
    journal.confirm()
    journal.confirm()
    assert (dict(world.services.coordinator.groups), dict(journal.values)) == ({}, {})


def test_a_deletion_refused_late_leaves_a_group_that_can_be_joined_and_deleted(world):
    journal = slow_world(world, "one")
    reply = world.send(DELETE, 2, groups_names=["one"])
    group = world.services.coordinator.group("one")
    assert group.deleting
    world.timers.advance(RESPONSE_MAX_S)
    assert codes(reply.message) == {"one": 15}
    journal.refuse(ErrorCode.NOT_COORDINATOR)
    assert not group.deleting
    journal.slow = False
    assert codes(world.call(DELETE, 2, groups_names=["one"])) == {"one": 0}
    assert dict(journal.values) == {}


@pytest.mark.parametrize("code", [-1, 14, 15, 25, 30_137])
def test_only_what_grants_the_right_deletes(world, code):
    """An authorizer that throws, a coordinator that loads, a newer broker: the group stays, the code is passed on."""
    world.group("empty")
    deletes = registry.message("OffsetDeleteResponse")
    world.broker.responses[47] = lambda version, request: deletes(error_code=code, topics=[])
    assert codes(world.call(DELETE, 2, groups_names=["empty"])) == {"empty": code}
    assert set(world.services.coordinator.groups) == {"empty"}
