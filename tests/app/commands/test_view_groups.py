"""Groups on views: which assignor they use, and whether members have whole base partitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka_share_proxy.app.commands.view_groups import ADVICE, GroupOnView, _classic, _modern, has_whole_bases
from kafka_share_proxy.consumer.groups.group_protocol import GroupAssignment, write_assignment
from kafka_share_proxy.wire.values import TopicPartition

VIEW = "__view.r4.orders"


@pytest.mark.parametrize(
    ("cells", "slots", "whole"),
    [
        ({"a": [0, 1, 2, 3], "b": [4, 5, 6, 7]}, 4, True),
        ({"a": [0, 2, 4, 6], "b": [1, 3, 5, 7]}, 4, False),
        ({"a": list(range(8))}, 4, False),
        ({"a": [0, 1], "b": [2, 3, 4, 5, 6, 7]}, 4, False),
        ({"a": [0], "b": [1]}, 1, False),
    ],
)
def test_members_with_all_slots_of_their_base_partitions_are_found(
    cells: dict[str, list[int]], slots: int, whole: bool
) -> None:
    assert has_whole_bases(cells, slots) is whole
    assert (ADVICE in GroupOnView("g", VIEW, "range", cells).line(slots)) is whole


def test_a_group_is_shown_with_its_assignor_and_its_balance() -> None:
    line = GroupOnView("g\x1b[2J", VIEW, "range", {"a": [0, 1, 2], "b": [3]}).line(4)
    assert line == (
        "group g?[2J reads __view.r4.orders: assignor range, 2 members, at most 3 partitions each (1.50 x the mean)"
    )


def classic(*members: tuple[str, bytes], error: int = 0) -> Any:
    listed = [SimpleNamespace(member_id=name, member_assignment=data) for name, data in members]
    return SimpleNamespace(group_id="g", error_code=error, protocol_data="range", members=listed)


def assigned(*partitions: tuple[str, int]) -> bytes:
    return write_assignment(GroupAssignment(partitions=tuple(TopicPartition(*each) for each in partitions)))


def test_assignments_of_a_classic_group_are_read_and_broken_ones_left_out() -> None:
    group = classic(("a", assigned((VIEW, 0), (VIEW, 1), ("orders", 0))), ("b", assigned((VIEW, 4))), ("c", b"\xff"))
    assert _classic(group) == [GroupOnView("g", VIEW, "range", {"a": [0, 1], "b": [4]})]
    assert _classic(classic(("a", assigned((VIEW, 0))), error=30)) == []


def test_assignments_of_a_group_of_the_new_protocol_are_read() -> None:
    topics = [SimpleNamespace(topic_name=name, partitions=[1, 2]) for name in (VIEW, "orders")]
    member = SimpleNamespace(member_id="a", assignment=SimpleNamespace(topic_partitions=topics))
    group = SimpleNamespace(group_id="g", error_code=0, assignor_name="uniform", members=[member])
    assert _modern(group) == [GroupOnView("g", VIEW, "uniform", {"a": [1, 2]})]
