"""A group is marked once, and concurrent requests wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest
from kafka_share_proxy.commits.marking import QUERY_AGAIN_S, SEEN_MAX_S
from kafka_share_proxy.commits.services import FEATURE
from kafka_share_proxy.fleet.group_owners import Peer, PeerLost
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.commit_world import OFFSET_COMMIT, CommitWorld


@dataclass
class Other:
    """Another proxy, with the query for known groups. See group_owners.Peer."""

    fleet: Fleet
    read: set[str] = field(default_factory=set)
    is_lost: bool = False
    is_silent: bool = False

    def knows(self, feature: str, group_id: str) -> Promise[bool]:
        assert feature == FEATURE
        self.fleet.queries += 1
        promise: Promise[bool] = Promise()
        if self.is_lost:
            promise.fail(PeerLost("cut"))
        elif not self.is_silent:
            promise.set(group_id in self.read)
        return promise


class Fleet:
    """A fleet in which this proxy owns everything at this moment. See group_owners.Fleet."""

    def __init__(self) -> None:
        self.world = CommitWorld()
        self.world.services.fleet = self
        self.groups: Mapping[str, None] = {}
        self.queries = 0
        self.peers = {name: Other(self) for name in ("first", "second")}
        self.linked = set(self.peers)

    @property
    def members(self) -> Mapping[str, Peer | None]:
        return {name: other if name in self.linked else None for name, other in self.peers.items()}  # type: ignore[misc]

    def owner(self, partition: int) -> Peer | None:
        return None

    def owners(self, partitions: Iterable[int]) -> list[Peer] | None:
        return []


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def test_second_text_waits_for_the_marker_in_flight() -> None:
    world = CommitWorld(slow=True)
    sent = [world.commit(5, f"ic/1;{first}-{first}", partition=index) for index, first in enumerate((7, 9))]
    assert len(world.journal.appends) == 1
    assert world.cluster.count(OFFSET_COMMIT) == 0
    world.journal.confirm()
    assert world.cluster.count(OFFSET_COMMIT) == 2
    while world.journal.appends:
        world.journal.confirm()
    assert [each.codes for each in sent] == [[0], [0]]


@pytest.mark.states("topic")
def test_stored_marker_is_not_stored_again() -> None:
    world = CommitWorld()
    world.begin(5, "7-7")
    world.journal.slow = True
    world.commit(5, "ic/1;9-9")
    assert len(world.journal.appends) == 1


def test_first_text_waits_until_every_other_proxy_has_read_the_marker(fleet: Fleet) -> None:
    """Also if a second text arrives once the marker is stored; later ones send no query."""
    sent = [fleet.world.commit(5, f"ic/1;{first}-{first}", partition=index) for index, first in enumerate((7, 9))]
    assert fleet.world.is_marked()
    fleet.peers["first"].read.add("g")
    fleet.world.timers.advance(QUERY_AGAIN_S)
    assert fleet.world.cluster.count(OFFSET_COMMIT) == 0
    fleet.peers["second"].read.add("g")
    fleet.world.timers.advance(QUERY_AGAIN_S)
    assert [each.codes for each in sent] == [[0], [0]]
    requested = fleet.queries
    assert fleet.world.commit(5, "ic/1;11-11").codes == [0]
    assert fleet.queries == requested


def test_text_gets_a_retriable_error_while_one_proxy_has_not_read_the_marker(fleet: Fleet) -> None:
    fleet.peers["first"].read.add("g")
    sent = fleet.world.commit(5, "ic/1;7-7")
    fleet.world.timers.advance(SEEN_MAX_S)
    assert sent.codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert fleet.world.cluster.count(OFFSET_COMMIT) == 0
    (refused,) = [context for event, context in fleet.world.world.notes if event == "commit-refused"]
    assert "second" in refused["reason"]
    assert "first" not in refused["reason"]
    fleet.peers["second"].read.add("g")
    assert fleet.world.commit(5, "ic/1;7-7").codes == [0]


@pytest.mark.parametrize("is_linked", [True, False])
def test_unreachable_proxy_is_waited_for_until_it_is_no_longer_a_member(fleet: Fleet, is_linked: bool) -> None:
    fleet.peers["first"].read.add("g")
    fleet.peers["second"].is_lost = True
    fleet.linked = {"first", "second"} if is_linked else {"first"}
    sent = fleet.world.commit(5, "ic/1;7-7")
    fleet.world.timers.advance(SEEN_MAX_S / 2)
    assert fleet.world.cluster.count(OFFSET_COMMIT) == 0
    del fleet.peers["second"]
    fleet.world.timers.advance(QUERY_AGAIN_S)
    assert sent.codes == [0]


def test_proxy_that_never_responds_holds_the_first_text_for_a_bounded_time(fleet: Fleet) -> None:
    fleet.peers["first"].is_silent = True
    sent = fleet.world.commit(5, "ic/1;7-7")
    fleet.world.timers.advance(SEEN_MAX_S)
    assert sent.codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_plain_commits_query_no_other_proxy(fleet: Fleet) -> None:
    assert fleet.world.commit(5).codes == [0]
    assert fleet.queries == 0


async def test_readers_of_a_loaded_marker_are_queried_again(fleet: Fleet) -> None:
    """The owner before may have died before anybody else had read it."""
    for other in fleet.peers.values():
        other.read.add("g")
    fleet.world.begin(5, "7-7")
    requested = fleet.queries
    await fleet.world.restart()
    assert fleet.world.commit(5, "ic/1;9-9").codes == [0]
    assert fleet.queries == requested + len(fleet.peers)
