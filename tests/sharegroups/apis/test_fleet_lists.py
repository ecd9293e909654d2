"""Lists of all groups in a fleet: whole, or not at all."""

from __future__ import annotations

from kafka_share_proxy.forwarding.dispatch.declared_api import HOLD_MAX_S
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.sharegroups.apis.fleet_lists import held_elsewhere

from tests.support.far import FarWorld
from tests.support.ports import World


def started(services) -> Task:
    task = Task(held_elsewhere(services), lambda _: None)
    task.start()
    return task


def test_alone_there_is_nothing_elsewhere():
    assert started(World().services).value == ()


def test_what_the_owner_holds_is_reported():
    world = FarWorld()
    world.configure("set", share_auto_offset_reset="earliest")
    world.member().heartbeat(0, ["t"])
    (holdings,) = started(world.edge).value
    assert [tuple(group) for group in holdings.groups] == [("g", "Stable")]
    assert list(holdings.with_settings) == ["set"]


def test_without_one_of_the_owners_there_is_no_list():
    """Groups of the missing proxy would seem not to exist."""
    world = FarWorld()
    world.wire.cut()
    world.edge_fleet.peer = None
    task = started(world.edge)
    world.timers.advance(HOLD_MAX_S + 0.1)
    assert task.finished
    assert task.value is None
    task = started(world.edge)
    world.link()
    world.edge.gate.wake()
    assert len(task.value) == 1


def test_link_that_ends_while_it_is_queried_is_queried_again():
    world = FarWorld()
    world.wire.held = []
    task = started(world.edge)
    assert not task.finished
    world.wire.cut()
    world.link()
    world.edge.gate.wake()
    assert task.value is not None
