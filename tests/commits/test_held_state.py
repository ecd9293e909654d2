"""State of the owner of groups: read from the topic, and removed."""

from __future__ import annotations

from kafka_share_proxy.commits.held_state import HeldCommits
from kafka_share_proxy.commits.state_records import (
    BINDING,
    INDIVIDUAL_COMMITS,
    GroupKey,
    RangeKey,
    RangeValue,
    encode_key,
    group_value,
)
from kafka_share_proxy.commits.state_records import range_value as stored
from kafka_share_proxy.durable.described_state import HeldState
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.wire.values import TopicPartition

ID = bytes(range(16))


def record(first: int, last: int, mark: int, group: str = "g", partition: int = 0) -> tuple[bytes, bytes]:
    return encode_key(RangeKey(group, "t", partition, first, last)), stored(RangeValue(ID, 1, mark, 5, "m"))


async def test_ranges_are_held_with_the_highest_committed_offset_that_they_were_stored_with() -> None:
    held = HeldCommits()
    state: HeldState = held
    keep_alive = INDIVIDUAL_COMMITS.keep_alive().key or b""
    mark = (encode_key(GroupKey("g")), group_value(5))
    await state.load([record(45, 47, 43), mark, record(60, 60, 44), (keep_alive, b""), record(50, 50, 41)])
    assert state.figures() == {"groups": 1, "ranges": 3}
    group = held.groups["g"]
    assert group.has_marker
    partition = group.partitions[TopicPartition("t", 0)]
    assert (str(partition.ranges), partition.stored_committed, partition.is_committed_known, partition.topic_id) == (
        "45-47,50-50,60-60",
        44,
        False,
        ID,
    )
    state.limit_records(1 << 20)


async def test_ranges_that_overlap_in_the_topic_become_one_and_their_records_are_written_anew() -> None:
    """After an owner crashed between a put and the tombstones that it made possible, in an append of several parts."""
    held = HeldCommits()
    await held.load([record(45, 50, 43), record(45, 47, 43), record(50, 50, 43)])
    partition = held.groups["g"].partitions[TopicPartition("t", 0)]
    assert str(partition.ranges) == "45-50"
    change = partition.learn_committed(43, -1)
    assert [str(span) for span in change.removed] == ["45-47", "50-50"]


def bound(first: int, last: int, mark: int) -> tuple[bytes, bytes]:
    """Record with the topic id of a text."""
    value = stored(RangeValue(ID, 1, mark, 5, "m", BINDING))
    return encode_key(RangeKey("g", "t", 0, first, last)), value


async def test_record_with_the_topic_id_of_a_text_is_no_range() -> None:
    records = [record(45, 47, 43), bound(50, 50, 44)]
    for in_metadata in (True, False):
        held = HeldCommits(in_metadata=in_metadata)
        await held.load(records)
        partition = held.groups["g"].partitions[TopicPartition("t", 0)]
        assert (str(partition.ranges), partition.stored_committed, partition.topic_id) == ("45-47", 44, ID)
        assert partition.has_text
        assert partition.topic_is(bytes(16)[:-1] + b"x")
        assert partition.is_text_foreign
        assert str(partition.shown(44, [(60, 70)])[1]) == ""


async def test_what_the_topic_holds_next_to_the_metadata_can_be_stored_again() -> None:
    held, again = HeldCommits(in_metadata=True), HeldCommits(in_metadata=True)
    await held.load([record(45, 47, 43), bound(50, 50, 44)])
    expected = {state_partition("g")}
    assert held.groups["g"].state_of(TopicPartition("t", 0)).learn_committed(44, -1, [(60, 61)]) == ((), ())
    await again.load([(encode_key(key), value) for key, value in held.stored(expected, time_ms=9)])
    assert list(again.stored(expected, time_ms=9)) == list(held.stored(expected, time_ms=9))
    assert str(again.groups["g"].state_of(TopicPartition("t", 0)).ranges) == "45-47"


async def test_groups_of_partitions_that_others_own_are_forgotten() -> None:
    held = HeldCommits()
    await held.load([record(45, 47, 43), record(45, 47, 43, group="other")])
    assert state_partition("g") != state_partition("other")
    await held.forget({state_partition("g")})
    assert set(held.groups) == {"other"}


async def test_everything_held_of_some_partitions_can_be_stored_again() -> None:
    """Groups, and each range with its topic id and mark; what belongs to other owners is left out."""
    held, again = HeldCommits(), HeldCommits()
    groups = ["g", next(name for name in map(str, range(99)) if state_partition(name) != state_partition("g"))]
    for name in groups:
        mark = (encode_key(GroupKey(name)), group_value(5))
        await held.load([mark, record(45, 47, 43, name), record(50, 50, 44, name), record(7, 7, 3, name, partition=1)])
    expected = {state_partition("g")}
    await again.load([(encode_key(key), value) for key, value in held.stored(expected, time_ms=9)])
    assert again.groups == {"g": held.groups["g"]}
    assert list(again.stored(expected, time_ms=9)) == list(held.stored(expected, time_ms=9))
