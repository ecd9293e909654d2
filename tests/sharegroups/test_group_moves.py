"""What hand-overs and take-backs have in common."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.sharegroups.group_moves import CLOSING, NAMED_MAX, WAIT_S_MAX, Move, names_of, some
from kafka_share_proxy.sharegroups.native_group import MoveRefused
from kafka_share_proxy.wire.errors import UpstreamLost

from tests.support.ports import World


class Moved(Move):
    """A move that takes 2 s with records held back, and then fails or not."""

    done, kind = "handed over", "handed_over"

    def __init__(self, world: World, failure: Exception | None = None) -> None:
        super().__init__(world.services, "g", wait_s=10_000, force=False)
        self._world, self._failure, self.was_ended = world, failure, False

    async def _move(self) -> None:
        self._hold_back()
        assert (self.phase, self._wait_s) == (CLOSING, WAIT_S_MAX)
        self._world.timers.advance(2)
        if self._failure is not None:
            raise self._failure

    def _end(self) -> None:
        self.was_ended = True


def run(move: Move) -> None:
    task: Task[Any] = Task(move.run(), lambda _: None)
    task.start()
    assert task.error is None


def test_move_counts_the_time_for_which_records_were_held_back() -> None:
    world = World()
    move = Moved(world)
    assert not move.ended
    run(move)
    assert (move.ended, move.was_ended) == (True, True)
    assert (move.view()["phase"], move.view()["held_back_s"]) == ("handed over", 2.0)
    figures = world.services.figures
    assert (figures.moves["handed_over"], figures.moves["refused"], figures.held_back_s.total) == (1, 0, 2.0)


@pytest.mark.parametrize("failure", [MoveRefused("not now"), UpstreamLost("not now")])
def test_refused_or_failed_move_says_why_and_is_ended_too(failure: Exception) -> None:
    world = World()
    move = Moved(world, failure)
    run(move)
    assert (move.ended, move.was_ended, move.view()["reason"]) == (True, True, "not now")
    assert world.services.figures.moves["refused"] == 1
    assert "share-group-stays" in [note[0] for note in world.notes]


def test_text_of_many_partitions_is_bounded() -> None:
    windows = [
        {"topic": "t", "partition": number, "start_offset": 1, "end_offset": 2} for number in range(NAMED_MAX + 3)
    ]
    assert names_of(windows[:2]) == "t-0 offsets 1-2, t-1 offsets 1-2"
    assert names_of(windows).endswith(f"t-{NAMED_MAX - 1} offsets 1-2 and 3 more")
    assert some(["a"]) == "a"
