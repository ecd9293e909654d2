"""Members that wait for one that retires, and members that have ended."""

from __future__ import annotations

import trio
from kafka_share_proxy.durable.member_changes import SUCCESSOR_S, EndedMembers, Succession
from kafka_share_proxy.durable.ownership_rules import OwnerInTable
from trio.testing import MockClock


async def test_successor_waits_until_it_gets_partitions_or_a_member_leaves(autojump_clock: MockClock) -> None:
    for has_partitions, has_fewer_members in ((True, False), (False, True)):
        succession = Succession(is_successor=True)
        assert not succession.ends_with_table(has_partitions=False, has_fewer_members=False)
        assert succession.is_waiting
        assert succession.ends_with_table(has_partitions=has_partitions, has_fewer_members=has_fewer_members)
        assert not succession.is_waiting


async def test_successor_waits_a_limited_time_from_the_first_table_on(autojump_clock: MockClock) -> None:
    succession = Succession(is_successor=True)
    await trio.sleep(2 * SUCCESSOR_S)
    assert not succession.ends_by_time()
    succession.ends_with_table(has_partitions=False, has_fewer_members=False)
    await trio.sleep(SUCCESSOR_S)
    assert succession.ends_by_time()
    assert not succession.ends_by_time(), "it ends once"


async def test_member_that_follows_none_does_not_wait(autojump_clock: MockClock) -> None:
    succession = Succession(is_successor=False)
    assert not succession.is_waiting
    assert not succession.ends_with_table(has_partitions=True, has_fewer_members=True)


def test_only_members_of_the_last_table_are_removed() -> None:
    ended = EndedMembers()
    ended.add("b:9")
    assert not ended.peers
    ended.on_table({"b-1": OwnerInTable("b", (0,), "proxy-b", "b:9")})
    ended.add("b:9")
    assert ended.to_remove() == {"b:9": ("b-1", "proxy-b")}


def test_member_that_ended_again_during_the_removal_is_removed_by_the_next_request() -> None:
    ended = EndedMembers()
    ended.on_table({"b-1": OwnerInTable("b", (0,), "proxy-b", "b:9")})
    ended.add("b:9")
    sent = ended.to_remove()
    ended.on_table({"b-2": OwnerInTable("b", (0,), "proxy-b", "b:9")})
    ended.add("b:9")
    ended.removed(sent)
    assert ended.to_remove() == {"b:9": ("b-2", "proxy-b")}
    ended.removed(ended.to_remove())
    assert not ended.peers
