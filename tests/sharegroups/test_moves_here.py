"""Which moves of groups are begun."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal

import pytest
from kafka_share_proxy.durable.memory_journal import MemoryJournal
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.sharegroups.moves_here import IDENTITY, Moves
from kafka_share_proxy.sharegroups.native_group import MoveRefused
from kafka_share_proxy.sharegroups.placement import ServeRule, ShareRules

from tests.support.ports import World

Action = Literal["hand_over", "take_back"]


class Silent:
    """Brokers that do not respond."""

    def send_request(self, *_: Any) -> Promise[Any]:
        return Promise()


@pytest.fixture
def world() -> World:
    """Group `here` has read a partition."""
    share_world = World(journal=MemoryJournal())
    share_world.configure("here", share_auto_offset_reset="earliest")
    topic = share_world.cluster.create("t")
    share_world.cluster.produce(topic, 1)
    share_world.member(group_id="here").fetch(topic)
    share_world.services.coordinator.add_group("here")
    share_world.services.own = Silent()
    return share_world


def rules(serve: Literal["auto", "local", "upstream"] = "auto", *, native: bool = True) -> ShareRules:
    return ShareRules(native, (ServeRule(serve=serve),), "" if native else "broker 1 has nothing")


def refusal(world: World, action: Action, group_id: str, of: ShareRules) -> str:
    with pytest.raises(MoveRefused) as refused:
        getattr(Moves(world.services, of), action)(group_id, wait_s=1, force=False)
    return str(refused.value)


def test_place_in_the_settings_must_allow_the_other_side(world: World) -> None:
    assert "would create it here again" in refusal(world, "hand_over", "here", rules("local"))
    assert "would refuse its members" in refusal(world, "take_back", "there", rules("upstream"))
    assert "is held here already" in refusal(world, "take_back", "here", rules())
    assert "is not held here" in refusal(world, "hand_over", "there", rules())


def test_state_in_memory_takes_no_group_back(world: World) -> None:
    assert "share_groups.state is memory" in refusal(world, "take_back", "there", rules())


@pytest.mark.parametrize(("action", "group_id"), [("hand_over", "here"), ("take_back", "there")])
def test_brokers_must_have_share_groups_and_know_the_proxy(world: World, action: Action, group_id: str) -> None:
    assert refusal(world, action, group_id, rules(native=False)) == "broker 1 has nothing"
    world.services.own = None
    assert refusal(world, action, group_id, rules()) == IDENTITY


@pytest.mark.parametrize(("action", "group_id"), [("hand_over", "here"), ("take_back", "there")])
def test_fleet_must_be_whole(world: World, action: Action, group_id: str) -> None:
    world.services.fleet = SimpleNamespace(groups={}, members={"b:1": None, "c:1": object()})  # type: ignore[assignment]
    assert "the fleet is not whole: no link to b:1;" in refusal(world, action, group_id, rules())


def test_move_in_progress_is_continued_and_excludes_the_other_direction(world: World) -> None:
    moves = Moves(world.services, rules())
    move = moves.hand_over("here", wait_s=1, force=False)
    assert moves.hand_over("here", wait_s=1, force=True) is move is moves.latest("here")
    with pytest.raises(MoveRefused, match="in the other direction"):
        moves.take_back("here", wait_s=1, force=False)
    assert moves.latest("there") is None
