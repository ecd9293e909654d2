"""Holding a new share group."""

from __future__ import annotations

from kafka_share_proxy.durable.interfaces import RESPONSE_MAX_S
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.sharegroups.new_groups import GroupRefused, hold_group
from kafka_share_proxy.sharegroups.state.state_records import StateKey
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import SlowJournal, World


def hold(world, group_id="g"):
    task = Task(hold_group(world.connect(), world.services, group_id), lambda _: None)
    task.start()
    return task


def test_a_group_is_held_once_its_existence_is_stored():
    world = World(journal=SlowJournal())
    world.journal.slow = True
    task = hold(world)
    assert world.services.coordinator.group("g") is None
    world.journal.confirm()
    assert task.value is world.services.coordinator.group("g")
    assert StateKey("group", "g") in world.journal.values


def test_a_refused_group_is_not_held():
    """The journal refuses, or another group upstream has the id."""
    world = World(journal=SlowJournal())
    world.journal.slow = True
    task = hold(world)
    world.journal.refuse(ErrorCode.NOT_COORDINATOR)
    assert task.value == GroupRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "NOT_COORDINATOR")
    world.cluster.classic_groups.add("taken")
    refused = hold(world, "taken").value
    assert (refused.code, "classic" in refused.message) == (ErrorCode.GROUP_ID_NOT_FOUND, True)
    assert dict(world.services.coordinator.groups) == {}
    assert world.notes[-1][0] == "share-group-id-taken"


def test_a_group_that_is_stored_late_is_held_from_then_on():
    """The requester gets a retriable error in time (15); the outcome is visible later."""
    world = World(journal=SlowJournal())
    world.journal.slow = True
    task = hold(world)
    world.timers.advance(RESPONSE_MAX_S)
    assert task.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.services.coordinator.group("g") is None
    world.journal.confirm()
    assert world.services.coordinator.group("g").state == "Empty"


def test_a_group_whose_founder_left_is_held_as_it_is_stored():
    """The content of the journal is in memory as well."""
    world = World(journal=SlowJournal())
    world.journal.slow = True
    hold(world).cancel()
    world.journal.confirm()
    assert world.services.coordinator.group("g").state == "Empty"
