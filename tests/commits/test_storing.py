"""Changes of ranges on their way into the topic: in one append where they fit, else puts first."""

from __future__ import annotations

from kafka_share_proxy.commits.state_records import RangeKey
from kafka_share_proxy.commits.storing import RECORD_BYTES, StoredChange, outcome_of_appends, store
from kafka_share_proxy.loop.promise import on_its_own
from kafka_share_proxy.offsets.ranges import OffsetSpan, RangeChange
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

from tests.support.commit_world import CommitWorld

PLACE = TopicPartition("t", 0)
CHANGE = RangeChange(
    tuple(OffsetSpan(first, first + 1) for first in range(100, 200, 10)),
    tuple(OffsetSpan(first, first + 2) for first in range(300, 400, 10)),
)


def appends(world: CommitWorld) -> list[list[str]]:
    return [
        [
            f"{'-' if value is None else '+'}{key.first}-{key.last}"
            for key, value in records
            if isinstance(key, RangeKey)
        ]
        for records, _ in world.journal.appends
    ]


def store_change(world: CommitWorld) -> None:
    group = world.services.held.group("g")
    store(world.services, group, [StoredChange(PLACE, group.state_of(PLACE), CHANGE)])


def test_what_fits_is_one_append_with_puts_before_tombstones() -> None:
    world = CommitWorld(slow=True)
    store_change(world)
    ((*records,),) = appends(world)
    assert [record[0] for record in records] == ["+"] * 10 + ["-"] * 10


def test_what_is_too_large_follows_in_appends_of_which_each_may_be_the_last() -> None:
    world = CommitWorld(slow=True)
    world.services.held.append_bytes = 5 * RECORD_BYTES
    store_change(world)
    parts = appends(world)
    assert len(parts) > 4
    assert [record[0] for part in parts for record in part] == ["+"] * 10 + ["-"] * 10


def test_all_parts_are_waited_for_and_one_that_fails_is_raised() -> None:
    world = CommitWorld(slow=True)
    world.services.held.append_bytes = 5 * RECORD_BYTES
    store_change(world)
    group = world.services.held.group("g")
    code = on_its_own(outcome_of_appends(world.services, group))
    while len(world.journal.appends) > 1:
        world.journal.confirm()
    assert not code.done
    world.journal.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert code.result() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.state_of(PLACE).unsure == {*CHANGE.put, *CHANGE.removed}


def test_limit_is_that_of_the_topic() -> None:
    held = CommitWorld().services.held
    assert held.append_bytes == 4 << 20
    held.limit_records(1 << 16)
    assert held.append_bytes == 4 << 16


def test_nothing_to_store_appends_nothing() -> None:
    world = CommitWorld(slow=True)
    group = world.services.held.group("g")
    store(world.services, group, [StoredChange(PLACE, group.state_of(PLACE), RangeChange())])
    assert world.journal.appends == []
    assert on_its_own(outcome_of_appends(world.services, group)).result() == ErrorCode.NONE
