"""A group is marked once, and whoever comes meanwhile waits for it."""

from __future__ import annotations

from tests.support.commit_world import OFFSET_COMMIT, CommitWorld


def test_second_text_waits_for_the_mark_that_is_on_its_way() -> None:
    world = CommitWorld(slow=True)
    sent = [world.commit(5, f"ic/1;{first}-{first}", partition=index) for index, first in enumerate((7, 9))]
    assert len(world.journal.appends) == 1
    assert world.cluster.count(OFFSET_COMMIT) == 0
    world.journal.confirm()
    assert world.cluster.count(OFFSET_COMMIT) == 2
    while world.journal.appends:
        world.journal.confirm()
    assert [each.codes for each in sent] == [[0], [0]]


def test_marked_groups_are_not_marked_again() -> None:
    world = CommitWorld()
    world.begin(5, "7-7")
    world.journal.slow = True
    world.commit(5, "ic/1;9-9")
    assert len(world.journal.appends) == 1
