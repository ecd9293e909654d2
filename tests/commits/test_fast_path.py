"""Commits on the synchronous fast path: same result as the handler's, which gets all uncommon ones."""

from __future__ import annotations

import random

import pytest
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.commit_world import OFFSET_COMMIT, Api, Committed, CommitWorld
from tests.support.offset_commits import offset_commit

VERSION = 9


@pytest.fixture
def world() -> CommitWorld:
    commit_world = CommitWorld()
    commit_world.begin(43, "45-47")
    return commit_world


def commits(chance: random.Random, texts: list[str]) -> list[tuple[str, int, int, str | None]]:
    """Return the commits of one request."""
    places = chance.sample([("t", 0), ("t", 1), ("u", 0)], chance.choice((1, 1, 1, 2)))
    return [(topic, partition, chance.randrange(30), chance.choice(texts)) for topic, partition in places]


def a_text(chance: random.Random) -> str:
    ranges = [
        (first, first + chance.randrange(4)) for first in chance.sample(range(40), chance.choice((0, 1, 1, 1, 3)))
    ]
    text = "ic/1;" + ",".join(f"{first}-{last}" for first, last in ranges)
    return text + chance.choice(("", "", "", "\0", ";u=mine", ";pr=70-80", ";x"))


@pytest.mark.parametrize("seed", range(30))
def test_short_way_and_handler_come_to_the_same(seed: int) -> None:
    """Responses, the coordinator's offsets, the topic and memory are compared step by step."""
    ways = [CommitWorld(fast_path=True, ranges_max=8), CommitWorld(fast_path=False, ranges_max=8)]
    chance = random.Random(seed)
    for step in range(60):
        refuse = chance.choice([ErrorCode.NONE] * 8 + [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_SERVER_ERROR])
        requested = commits(chance, [a_text(chance), a_text(chance), "plain", ""])
        version, epoch = chance.choice(range(2, 11)), chance.choice((-1, 3))
        responses = []
        for world in ways:
            world.coordinator.refuse = refuse
            responses.append(
                world.commit_many(requested, version=version, leader_epoch=epoch if version >= 6 else -1).response
            )
            world.timers.advance(0.5)
        short, long = ways
        assert responses[0] == responses[1], (step, requested)
        assert short.coordinator.committed == long.coordinator.committed, (step, requested)
        assert short.topic == long.topic
        assert short.services.held.groups == long.services.held.groups
        assert short.services.figures.commits == long.services.figures.commits
        assert len(short.services.locks) == len(long.services.locks) == 0
    assert ways[0].synchronous_fast_path > 0
    assert ways[1].synchronous_fast_path == 0


def test_first_commits_of_a_group_are_not_taken() -> None:
    """The group must be marked first, and the committed offsets queried."""
    world = CommitWorld()
    assert world.commit(5, "ic/1;7-8").codes == [0]
    assert world.synchronous_fast_path == 0
    assert world.commit(5, "ic/1;9-9").codes == [0]
    assert world.synchronous_fast_path == 1


@pytest.mark.parametrize("text", ["ic/1;50-50", "ic/1;50-50\0", "ic/1;50-50,52-60", "ic/1;", "mine", ""])
def test_usual_texts_are_taken(world: CommitWorld, text: str) -> None:
    before = world.synchronous_fast_path
    assert world.commit(43, text).codes == [0]
    assert world.synchronous_fast_path == before + 1


@pytest.mark.parametrize("text", ["ic/1;50-50;u=mine", "ic/1;;pr=50-60", "ic/1;x", "ic/2;50-50"])
def test_tokens_and_wrong_texts_are_left_to_the_handler(world: CommitWorld, text: str) -> None:
    before = world.synchronous_fast_path
    world.commit(43, text)
    assert world.synchronous_fast_path == before


def test_what_another_feature_wants_is_left_alone(world: CommitWorld) -> None:
    """A share group with the same id takes precedence (commits/README.md rule 13)."""
    frame = memoryview(frames.request(OFFSET_COMMIT, VERSION, 1, None, offset_commit("g", "t", 43)))
    handler = world.served[OFFSET_COMMIT].synchronous_handler
    assert handler is not None
    assert not handler(world.connect(), frame, Api(OFFSET_COMMIT, VERSION), lambda group_id: group_id == "g")
    assert handler(world.connect(), frame, Api(OFFSET_COMMIT, VERSION), lambda group_id: group_id == "h")


def test_locked_partition_is_waited_for_by_the_handler(world: CommitWorld) -> None:
    world.cluster.held = {OFFSET_COMMIT}
    moving = world.commit(43, "ic/1;43-44")
    before = world.synchronous_fast_path
    waiting = world.commit(43, "ic/1;60-60")
    assert world.synchronous_fast_path == before
    world.cluster.held = set()
    world.cluster.release()
    assert (moving.codes, waiting.codes, world.ranges()) == ([0], [0], "60-60")


def test_moved_past_the_proxy_is_left_to_the_handler_once_it_is_known(world: CommitWorld) -> None:
    world.coordinator.committed["g", "t", 0] = Committed(44)
    world.coordinator.refuse = ErrorCode.UNKNOWN_SERVER_ERROR
    world.commit(43, "ic/1;60-60")
    world.coordinator.refuse, before = ErrorCode.NONE, world.synchronous_fast_path
    assert world.commit(43, "ic/1;60-60").codes == [0]
    assert world.synchronous_fast_path == before
