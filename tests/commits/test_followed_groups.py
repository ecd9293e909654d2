"""Which groups commit individually, known from the topic: loading, loaded, unreadable, too many, taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from kafka_share_proxy.brokers.cluster_client import AuthenticationNeeded
from kafka_share_proxy.commits import followed_groups
from kafka_share_proxy.commits.followed_groups import PASS_AFTER_S, FollowedGroups
from kafka_share_proxy.commits.state_records import (
    INDIVIDUAL_COMMITS,
    TOPIC,
    GroupKey,
    RangeKey,
    RangeValue,
    encode_key,
    group_value,
    range_value,
)
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.wire.records.records import Record
from trio.testing import MockClock

from tests.support.state_cluster import StateCluster

SAME = next(f"h{n}" for n in range(999) if state_partition(f"h{n}") == state_partition("g"))
"""A group of the same partition as "g"."""


class Following:
    """The groups as a proxy follows them, and an owner that writes."""

    def __init__(self, cluster: StateCluster) -> None:
        self.cluster, self.notes = cluster, list[str]()
        self.followed = FollowedGroups(self._note, access=cluster.access(self._note))
        assert self.followed.tail is not None
        self.tail = self.followed.tail

    def _note(self, event: str, /, **_context: Any) -> None:
        self.notes.append(event)

    def make(self) -> None:
        self.cluster.make(TOPIC, INDIVIDUAL_COMMITS.partitions)
        for partition in INDIVIDUAL_COMMITS.all:
            self.write(partition, INDIVIDUAL_COMMITS.takeover("o:1", 0, 7, 0))

    def write(self, partition: int, *records: Record) -> None:
        self.cluster.write(TOPIC, partition, list(records), 7, 0)

    def mark(self, group_id: str, *, lost: bool = False) -> None:
        record = Record(encode_key(GroupKey(group_id)), None if lost else group_value(1))
        self.write(state_partition(group_id), record)

    def run(self) -> None:
        self.cluster.nursery.start_soon(self.followed.run)

    async def until(self, condition: Callable[[], object]) -> None:
        with trio.fail_after(60):
            while not condition():  # noqa: ASYNC110 - of another task's doing
                await trio.sleep(0.01)


@pytest.fixture
def following(nursery: trio.Nursery) -> Following:
    return Following(StateCluster(nursery))


async def test_no_group_is_known_before_the_topic_is_read(autojump_clock: MockClock, following: Following) -> None:
    """Clients may be served before `run` begins. Their commits and fetches would pass without the ranges."""
    following.make()
    following.mark("g")
    assert following.followed.is_known("g") is None
    following.run()
    await following.until(lambda: following.followed.is_known("other") is False)
    assert following.followed.is_known("g") is True


async def test_groups_with_a_marker_are_known_until_it_is_deleted(
    autojump_clock: MockClock, following: Following
) -> None:
    """Ranges say nothing of it: their group was marked before."""
    following.make()
    following.mark("g")
    key, value = RangeKey("other", "t", 0, 1, 2), range_value(RangeValue())
    following.write(state_partition("other"), Record(encode_key(key), value))
    following.run()
    await following.until(lambda: not following.followed.uncertain and following.followed.groups)
    assert following.followed.groups == {"g": state_partition("g")}
    assert [following.followed.is_known(group) for group in ("g", SAME, "other")] == [True, False, False]
    following.mark("new")
    await following.until(lambda: following.followed.is_known("new"))
    following.mark("g", lost=True)
    await following.until(lambda: not following.followed.is_known("g"))


async def test_it_is_not_known_while_the_topic_is_loaded(autojump_clock: MockClock, following: Following) -> None:
    """Waiters are notified; then plain commits are forwarded, and it is known when brokers respond again."""
    followed = following.followed
    following.cluster.leave()
    following.run()
    await trio.sleep(0.1)
    assert followed.is_known("g") is None
    waiting = followed.changed()
    await trio.sleep(PASS_AFTER_S - 2)
    assert (waiting.done, followed.is_known("g")) == (False, None)
    await trio.sleep(4)
    assert (waiting.done, followed.is_known("g")) == (True, False)
    assert "commit-groups-not-known" in following.notes
    following.make()
    following.mark("g")
    following.cluster.come_back()
    await following.until(lambda: followed.is_known("g"))
    await following.until(lambda: "commit-groups-known" in following.notes)
    assert following.notes.count("commit-groups-not-known") == 1


async def test_topic_that_is_made_anew_is_loading_again(autojump_clock: MockClock, following: Following) -> None:
    following.make()
    following.mark("g")
    following.run()
    await following.until(lambda: following.followed.is_known("g"))
    following.make()
    await following.until(lambda: following.followed.is_known("g") is False)
    assert following.followed.uncertain == {}


async def test_missing_topic_has_no_groups(autojump_clock: MockClock, following: Following) -> None:
    following.run()
    await following.until(lambda: following.followed.is_known("g") is False)


@pytest.mark.parametrize("record", [Record(b"\0\x09new", b"x"), Record(encode_key(GroupKey("g")), b"\0\1new")])
async def test_groups_of_a_partition_that_cannot_be_read_are_taken_for_known(
    autojump_clock: MockClock, following: Following, record: Record
) -> None:
    """A newer proxy has written it, and its owner can read it; the others are known."""
    following.make()
    following.write(state_partition("g"), record)
    following.run()
    followed = following.followed
    await following.until(lambda: followed.uncertain == {state_partition("g"): True})
    assert (followed.is_known("g"), followed.is_known(SAME)) == (True, True)
    assert (
        followed.is_known(next(f"x{n}" for n in range(99) if state_partition(f"x{n}") != state_partition("g"))) is False
    )
    assert "commit-groups-not-known" not in following.notes


@pytest.mark.parametrize(("name", "most"), [("GROUPS_MAX", 3), ("GROUP_CHARACTERS_MAX", 40)])
def test_more_groups_than_are_remembered_are_all_taken_for_known(
    name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only of the partition that has them; the log reports it, and memory stays bounded."""
    monkeypatch.setattr(followed_groups, name, most)
    notes: list[str] = []
    followed = FollowedGroups(lambda event, **_: notes.append(event), clock=lambda: 0.0)
    marked = [f"group-{n}" for n in range(60)]
    for group in marked:
        followed.apply(encode_key(GroupKey(group)), group_value(1))
    assert all(followed.is_known(group) for group in marked)
    assert sum(map(len, followed.groups)) <= 40
    assert followed.overflowing
    assert notes.count("commit-groups-too-many") == len(followed.overflowing)
    followed.forget(INDIVIDUAL_COMMITS.all)
    assert (followed.groups, followed.uncertain, followed._characters) == ({}, {}, 0)


async def test_without_an_identity_nothing_waits(autojump_clock: MockClock, following: Following) -> None:
    """And what is missing is said."""

    async def refuse() -> None:
        raise AuthenticationNeeded("brokers ask for authentication")

    following.tail._leaders._refresh = lambda _topic: refuse()  # type: ignore[method-assign]
    following.run()
    await following.until(lambda: following.followed.off)
    assert following.followed.off == "brokers ask for authentication"
    assert following.followed.is_known("g") is False


def test_owner_that_keeps_nothing_in_a_topic_says_itself_which_groups_it_knows() -> None:
    followed = FollowedGroups(lambda _event, **_: None, clock=lambda: 0.0)
    assert followed.is_known("g") is False
    followed.add("g")
    assert followed.is_known("g") is True
