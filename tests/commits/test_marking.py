"""A group is marked once, and whoever comes meanwhile waits for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from proxy.commits.marking import MARK_SEEN_S
from tests.support.commit_world import OFFSET_COMMIT, CommitWorld

ALONE: Any = SimpleNamespace(groups={}, owner=lambda _: None, owners=lambda _: [])
"""A fleet in which this proxy owns everything at this moment."""


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


def test_other_proxies_of_a_fleet_have_time_to_read_the_mark() -> None:
    """Also where a second text comes once the mark is stored; later ones do not wait, nor do those after a takeover."""
    world = CommitWorld()
    world.services.fleet = ALONE
    sent = [world.commit(5, f"ic/1;{first}-{first}", partition=index) for index, first in enumerate((7, 9))]
    assert world.is_marked()
    assert world.cluster.count(OFFSET_COMMIT) == 0
    world.timers.advance(MARK_SEEN_S)
    assert [each.codes for each in sent] == [[0], [0]]
    assert world.commit(5, "ic/1;11-11").codes == [0]


async def test_mark_that_was_loaded_is_known_to_all() -> None:
    world = CommitWorld()
    world.begin(5, "7-7")
    await world.restart()
    world.services.fleet = ALONE
    assert world.commit(5, "ic/1;9-9").codes == [0]
