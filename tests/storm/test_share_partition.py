"""Weather for one share partition: long seeded stories, and every story of a tiny world.

After each step: no record is held by two members, none is delivered again once its accept was stored, the start offset
never moves back, no record is delivered more often than the limit, and a reload equals the live state without locks.
"""

from __future__ import annotations

import pytest

from tests.sharegroups.model.world import Batch, EveryChoice, RandomChooser, Settings, World

CALM = ["append", "fetch", "fetch", "fetch", "acknowledge", "acknowledge", "store", "store", "refuse", "pass_time"]
"""No loss of log and no change of settings: the plain business of a queue."""
STEPS = 1500
TINY_STEPS = 4
STORIES_MAX = 100_000


@pytest.mark.parametrize("seed", range(100, 120))
def test_a_storm_breaks_nothing(seed: int) -> None:
    world = World(RandomChooser(seed))
    for _ in range(STEPS):
        try:
            world.step()
        except Exception as error:
            error.add_note(f"seed {seed}, step {len(world.story)}:\n" + "\n".join(world.story[-40:]))
            raise


@pytest.mark.parametrize("limit", [2, 3, 5, 10])
def test_every_record_is_settled_in_the_end(limit: int) -> None:
    """However the members behave meanwhile: when they release what they hold until nothing is left, all is settled."""
    world = World(RandomChooser(limit), Settings(delivery_count_limit=limit), CALM)
    for _ in range(300):
        world.step()
    for transition, change in world.pending:
        world.engine.apply(transition)
        world.model.apply(change)
    world.pending.clear()
    for _ in range(10_000):
        if world.engine.start_offset == world.log_end:
            return
        world.story.append("settle")
        world.fetch()
        world.release_all()
        world.store()
        world.compare()
    raise AssertionError(f"stuck at {world.engine.runs}")


class TinyWorld(World):
    """Two members, three records, few choices: small enough to see all of it."""

    def __init__(self, chooser: EveryChoice) -> None:
        super().__init__(chooser, Settings(delivery_count_limit=2, max_record_locks=3))
        self.choices = chooser
        self.story.append("append")
        self.append_one(0, 1)
        self.append_one(2, 2)
        self.fetch_as("ann", 2, record_limit=True)
        self.actions = [self.take, self.respond, self.store, self.refuse, self.lose_lock, self.leave]

    def append_one(self, base: int, last: int) -> None:
        self.log.append(Batch(base, last))
        self.log_end = last + 1

    def take(self) -> None:
        member = self.pick(("ann", "bob"))
        self.fetch_as(member, self.pick((1, 3)), record_limit=True)

    def respond(self) -> None:
        held = self.engine.locks()
        if held:
            lock = held[0]
            types = self.pick(([1], [2], [4]))
            self.acknowledge_as(self.pick(("ann", "bob")), [(lock.first, lock.last, types)])

    def lose_lock(self) -> None:
        self.pass_exactly(31.0)

    def leave(self) -> None:
        self.wait(self.engine.decide_release("ann", self.settings), self.model.release("ann", self.settings))

    def check(self) -> None:
        if self.choices.new:
            super().check()

    def compare(self) -> None:
        if not self.choices.new:
            return  # An earlier story began in the same way.
        chance, self.chance = self.chance, lambda one_in: True  # type: ignore[method-assign]
        try:
            super().compare()
        finally:
            self.chance = chance  # type: ignore[method-assign]


def test_every_story_of_a_tiny_world_is_right() -> None:
    choices = EveryChoice()
    stories = 0
    while choices.begin():
        world = TinyWorld(choices)
        for _ in range(TINY_STEPS):
            world.step()
        choices.end()
        stories += 1
        assert stories < STORIES_MAX, "the tiny world is not tiny any more"
    assert stories > 1000
