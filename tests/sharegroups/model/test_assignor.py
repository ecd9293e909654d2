"""Assignor "simple": guarantees of every assignment, and the exact result of small ones."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.sharegroups.model.assignor import assign, quotas, sharing_degree

A, B, C = (bytes([letter]) * 16 for letter in b"abc")

members = st.integers(0, 12).map(lambda count: [f"m{number:02}" for number in range(count)])
topics = st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 9), max_size=3)
holdings = st.dictionaries(
    st.sampled_from([f"m{number:02}" for number in range(14)]),
    st.dictionaries(st.sampled_from([A, B, C]), st.sets(st.integers(0, 11), max_size=12), max_size=3),
)


def counted(assignment):
    """(topic id, partition) -> how many members have it; member -> how many partitions it has."""
    places = Counter(
        (topic_id, number) for mine in assignment.values() for topic_id, numbers in mine.items() for number in numbers
    )
    loads = {member: sum(map(len, mine.values())) for member, mine in assignment.items()}
    return places, loads


@given(members, topics, holdings)
def test_equal_subscriptions_are_balanced_from_any_assignment(names, partitions, held):
    """Every partition has exactly ceil(M/P) members, and no member has two more than another."""
    result = assign(dict.fromkeys(names, frozenset(partitions)), partitions, held)
    places, loads = counted(result)
    total = sum(partitions.values())
    assert set(result) == set(names)
    expected = sharing_degree(len(names), total) if names else 0
    assert places == {
        (tid, number): expected for tid, count in partitions.items() for number in range(count) if expected
    }
    if names and total:
        assert max(loads.values()) - min(loads.values()) <= 1
        assert [loads[name] for name in sorted(names)] == quotas(len(names), total)


@given(st.data(), topics, holdings)
def test_each_topic_of_different_subscriptions_is_balanced_among_its_subscribers(data, partitions, held):
    """Every partition of a subscribed topic has members, all subscribed; within a topic loads differ by one at most."""
    names = data.draw(members)
    subscribed = {name: data.draw(st.frozensets(st.sampled_from([A, B, C]))) for name in names}
    result = assign(subscribed, partitions, held)
    if len(set(subscribed.values())) <= 1:
        return
    for topic_id, count in partitions.items():
        loads = {name: result[name].get(topic_id, ()) for name in names if topic_id in subscribed[name]}
        if not loads or not count:
            continue
        assert {number for numbers in loads.values() for number in numbers} == set(range(count))
        assert max(map(len, loads.values())) - min(map(len, loads.values())) <= 1
    assert all(set(mine) <= subscribed[name] for name, mine in result.items())


@given(members, topics, holdings)
def test_an_assignment_stays_when_nothing_changed(names, partitions, held):
    """Assigning again from the result gives the result."""
    subscribed = dict.fromkeys(names, frozenset(partitions))
    once = assign(subscribed, partitions, held)
    assert assign(subscribed, partitions, once) == once


@given(members, topics, holdings)
def test_results_are_sorted(names, partitions, held):
    """Topic ids and partitions come in ascending order, without empty topics."""
    for mine in assign(dict.fromkeys(names, frozenset(partitions)), partitions, held).values():
        assert list(mine) == sorted(mine)
        assert all(numbers and list(numbers) == sorted(set(numbers)) for numbers in mine.values())


@given(members, topics)
def test_a_member_that_leaves_moves_only_what_balance_requires(names, partitions):
    """With at most one member per partition, no member loses more than quotas force it to."""
    total = sum(partitions.values())
    if len(names) < 2 or len(names) > total:
        return
    before = assign(dict.fromkeys(names, frozenset(partitions)), partitions, {})
    stayed = names[1:]
    after = assign(dict.fromkeys(stayed, frozenset(partitions)), partitions, before)
    for name, quota in zip(stayed, quotas(len(stayed), total), strict=True):
        mine = {(tid, n) for tid, numbers in before[name].items() for n in numbers}
        retained_partitions = {(tid, n) for tid, numbers in after[name].items() for n in numbers} & mine
        assert len(retained_partitions) == min(len(mine), quota)


def test_partitions_are_dealt_in_order():
    """Two members share three partitions 2 to 1, dealt one by one."""
    result = assign({"a": frozenset({A}), "b": frozenset({A})}, {A: 3}, {})
    assert result == {"a": {A: (0, 2)}, "b": {A: (1,)}}


def test_members_share_a_partition_when_there_are_more_of_them():
    """One partition goes to both of two members, two partitions to three members in pairs."""
    assert assign(dict.fromkeys("ab", frozenset({A})), {A: 1}, {}) == {"a": {A: (0,)}, "b": {A: (0,)}}
    result = assign(dict.fromkeys("abc", frozenset({A})), {A: 2}, {})
    assert counted(result)[0] == {(A, 0): 2, (A, 1): 2}
    assert counted(result)[1] == {"a": 2, "b": 1, "c": 1}


def test_a_new_member_takes_only_its_quota():
    """Of six partitions of two members, a third member gets two, and nothing else moves."""
    before = {"a": {A: (0, 2, 4)}, "b": {A: (1, 3, 5)}}
    result = assign(dict.fromkeys("abc", frozenset({A})), {A: 6}, before)
    assert result == {"a": {A: (2, 4)}, "b": {A: (3, 5)}, "c": {A: (0, 1)}}


def test_partitions_no_longer_subscribed_or_deleted_are_dropped():
    """A topic without subscribers, a partition beyond the topic's size and an unknown topic are removed."""
    before = {"a": {A: (0, 7), B: (0,), C: (0,)}}
    assert assign({"a": frozenset({A, C})}, {A: 1, B: 1}, before) == {"a": {A: (0,)}}


def test_an_exchange_fills_a_partition_that_every_free_member_holds_already():
    """If only holders of a partition have room, another member takes it and releases one instead."""
    before = {"a": {A: (0,)}, "b": {A: (0, 1)}, "c": {A: (0,)}}
    result = assign(dict.fromkeys("abc", frozenset({A})), {A: 2}, before)
    assert counted(result)[0] == {(A, 0): 2, (A, 1): 2}


def test_each_topic_has_its_own_balance_when_subscriptions_differ():
    """A topic with one subscriber goes to it whole, and its other topic is still shared evenly."""
    subscribed = {"a": frozenset({A, B}), "b": frozenset({A})}
    assert assign(subscribed, {A: 2, B: 3}, {}) == {"a": {A: (0,), B: (0, 1, 2)}, "b": {A: (1,)}}


def test_no_members_and_no_partitions_are_fine():
    """No members, no topics and empty subscriptions give empty assignments."""
    assert assign({}, {A: 1}, {}) == {}
    assert assign({"a": frozenset()}, {A: 1}, {"a": {A: (0,)}}) == {"a": {}}
    assert assign({"a": frozenset({A})}, {}, {}) == {"a": {}}


def test_quotas_follow_the_ceiling_rule():
    """ceil(k(i+1)) - ceil(ki) with k = S*P/M."""
    assert quotas(3, 2) == [2, 1, 1]
    assert quotas(2, 3) == [2, 1]
    assert quotas(5, 1) == [1] * 5
    assert quotas(4, 10) == [3, 2, 3, 2]
    assert quotas(3, 0) == [0, 0, 0]
