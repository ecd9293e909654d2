"""Start offsets of the partitions of a view, so that a group loses nothing when it moves there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.app.commands.view_migration import Sliced, starts
from kafka_share_proxy.views.model.slots import EvenCut

R2, R4, BASE = Sliced("__view.r2.t", 2), Sliced("__view.r4.t", 4), Sliced("t", 1)


def test_every_new_slot_starts_at_the_least_of_the_old_ones() -> None:
    """Partition by partition of the base."""
    committed = {0: 10, 1: 7, 2: 100, 3: 200}
    assert starts(committed, R2, R4, 2, {0: 0, 1: 0}) == {0: 7, 1: 7, 2: 7, 3: 7, 4: 100, 5: 100, 6: 100, 7: 100}


def test_a_slot_without_a_commit_has_read_nothing() -> None:
    """Its base partition begins at the beginning of the log."""
    assert starts({0: 10}, R2, R4, 1, {0: 3}) == {0: 3, 1: 3, 2: 3, 3: 3}


def test_an_unread_base_partition_is_left_to_the_groups_reset_policy() -> None:
    """Its committed offset is unchanged."""
    assert starts({2: 5, 3: 6}, R2, R4, 2, {0: 0, 1: 0}) == {4: 5, 5: 5, 6: 5, 7: 5}


def test_a_group_can_come_from_the_base_and_go_back() -> None:
    """The base has one slot."""
    assert starts({0: 9}, BASE, R2, 1, {0: 0}) == {0: 9, 1: 9}
    assert starts({0: 9, 1: 4}, R2, BASE, 1, {0: 0}) == {0: 4}


@given(
    st.lists(st.integers(-1, 50), min_size=2, max_size=6),
    st.integers(1, 6),
    st.lists(st.binary(max_size=4), min_size=50, max_size=50),
)
def test_no_record_is_lost(old_commits: list[int], slots: int, keys: list[bytes]) -> None:
    """Every record that an old slot had not read is after the start of its new slot."""
    old, new = EvenCut(len(old_commits)), EvenCut(slots)
    committed = {slot: offset for slot, offset in enumerate(old_commits) if offset >= 0}
    start_offsets = starts(committed, Sliced("old", old.slots), Sliced("new", slots), 1, {0: 0})
    for offset, key in enumerate(keys):
        unread = offset >= max(old_commits[old.slot_of(key, offset)], 0)
        if unread and start_offsets:
            assert offset >= start_offsets[new.slot_of(key, offset)]
