"""Which requests about groups are wanted here."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.sharegroups.apis.held_groups import (
    any_entry,
    any_is_held,
    held_anywhere,
    named_group_is_held,
    names_held,
)
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import World as Shares


def request(group_id: str) -> memoryview:
    message = registry.message("OffsetDeleteRequest")(group_id=group_id, topics=[])
    return memoryview(frames.request(47, 0, 1, "c", message))[4:]


def is_named(picks: Any, *group_ids: str) -> bool:
    connection: Any = None
    task: Task[bool] = Task(picks(Call(15, 0, 1, None, group_ids, connection)), lambda _: None)
    task.start()
    return bool(task.value)


@pytest.fixture
def shares() -> Shares:
    held_shares = Shares()
    held_shares.services.coordinator.add_group("held")
    return held_shares


@pytest.mark.parametrize("or_loading", [False, True])
def test_only_a_held_group_is_selected(shares: Shares, or_loading: bool) -> None:
    """The bytes decide, and the names in a decoded list."""
    matches = named_group_is_held(or_loading=or_loading)(shares.services).matcher(47, 0)
    assert (matches(request("held")), matches(request("other"))) == (True, False)
    picks = names_held(list, or_loading=or_loading)(shares.services)
    assert (is_named(picks, "other", "held"), is_named(picks, "other")) == (True, False)
    assert "held" in held_anywhere(shares.services)


def test_a_list_is_only_read_where_there_is_a_group_to_be_named() -> None:
    """Most proxies of a cluster without share groups hold none."""
    shares = Shares()
    matches = any_is_held(or_loading=False)(shares.services).matcher(42, 2)
    assert not matches(memoryview(b""))
    shares.services.coordinator.add_group("held")
    assert matches(memoryview(b""))


def test_while_groups_are_loaded_the_held_ones_are_unknown(shares: Shares) -> None:
    """So those who wait for that want every request, and those who do not only what is held."""
    shares.services.gate.close(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "being loaded")
    waits = named_group_is_held(or_loading=True)(shares.services).matcher(47, 0)
    goes_on = named_group_is_held(or_loading=False)(shares.services).matcher(47, 0)
    assert (waits(request("other")), goes_on(request("other"))) == (True, False)
    assert is_named(names_held(list, or_loading=True)(shares.services), "other")
    assert not is_named(names_held(list, or_loading=False)(shares.services), "other")
    assert any_is_held(or_loading=True)(Shares().services).matcher(42, 2)(memoryview(b"")) is False


@given(st.lists(st.integers(0, 3), max_size=50), st.integers(0, 3))
def test_one_entry_of_ours_is_enough(entries: list[int], ours: int) -> None:
    """The decoded request has others too."""
    connection: Any = None
    call = Call(42, 2, 1, None, entries, connection)
    task: Task[bool] = Task(any_entry(lambda message: message, ours.__eq__)(call), lambda _: None)
    task.start()
    assert task.value is (ours in entries)
