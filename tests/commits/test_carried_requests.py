"""Commits between proxies: a client of one, the group at another."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from kafka_share_proxy.commits import commit_apis
from kafka_share_proxy.commits.carried_requests import CarriedCommits
from kafka_share_proxy.commits.services import FEATURE, CommitServices
from kafka_share_proxy.fleet.carried import CarriedFeatures, CarriedRequests, NothingKept
from kafka_share_proxy.fleet.edge import PeerEdge
from kafka_share_proxy.fleet.group_owners import PeerLost
from kafka_share_proxy.fleet.owner import PeerOwner
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.commit_world import Committed, CommitWorld
from tests.support.far import One, Wire

NUMBERS = itertools.count(1 << 40)


class FarCommits(CommitWorld):
    """`services` are the owner's; requests of clients come to an edge that owns nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.wire = Wire()
        self.edge = CommitServices(services=self.world.services, journal=self.journal)  # type: ignore[arg-type]
        self.edge.gate.closing(self.edge.gate.all, ErrorCode.COORDINATOR_NOT_AVAILABLE, "elsewhere")
        self.edge.followed.groups["g"] = 0
        carried: CarriedRequests = CarriedCommits(self.services, commit_apis.of_owner(self.services))
        self.peer = PeerEdge({FEATURE: NothingKept()}, self.timers, self.wire.to_owner, lambda: 1)
        owner = PeerOwner(self.world.services, CarriedFeatures([carried]), self.wire.to_edge, lambda: 1, NUMBERS)
        self.wire.users = [self.peer, owner]
        others = One()
        others.peer = self.peer
        self.edge.fleet = others
        self.served = {**commit_apis.commits(self.edge), **commit_apis.deletions(self.edge)}


@pytest.fixture
def far() -> FarCommits:
    return FarCommits()


def test_commit_is_judged_on_the_clients_own_connection_and_stored_by_the_owner(far: FarCommits) -> None:
    assert far.commit(43, "ic/1;45-47").codes == [0]
    assert (far.primary()[0], far.ranges()) == (43, "45-47")
    assert far.edge.held.groups == {}
    assert far.committed() == (43, "ic/1;45-47")
    assert far.commit(43, "ic/1;43-44").codes == [0]
    assert (far.primary()[0], far.ranges()) == (48, "")
    assert far.wire.sent.count("PeerRequest") == 3


def test_plain_commits_of_known_groups_go_to_the_owner_and_others_pass(far: FarCommits) -> None:
    far.commit(43, "ic/1;45-47")
    before = far.wire.sent.count("PeerRequest")
    assert far.commit(45).codes == [0]
    assert far.primary()[0] == 48
    assert far.commit(9, group="other").codes == [0]
    assert far.primary("other") == (9, "")
    assert far.wire.sent.count("PeerRequest") == before + 1


def test_link_that_ends_is_15_and_the_owner_asks_for_the_mark(far: FarCommits) -> None:
    far.commit(43, "ic/1;45-47")
    far.cluster.held = {8}
    sent = far.commit(43, "ic/1;43-44")
    far.coordinator.committed["g", "t", 0] = Committed(48)
    far.wire.cut()
    assert sent.codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert not far.services.held.groups["g"].partitions["t", 0].is_committed_known  # type: ignore[index]
    assert len(far.services.locks) == 0


def test_links_that_come_and_go_wake_who_waits() -> None:
    world = CommitWorld()
    carried = CarriedCommits(world.services, {})
    changed = world.services.gate.wait()
    carried.links_changed()
    assert changed.done
    carried.link_ended(5)
    assert (carried.feature, dict(carried.handlers)) == (FEATURE, {})
    response: Any = carried.edge()
    assert isinstance(response, NothingKept)


def test_proxy_knows_a_group_once_it_sends_its_commits_to_the_owner(far: FarCommits) -> None:
    """The query over a link: the owner itself knows which groups it holds."""
    assert not far.peer.knows(FEATURE, "g").result()
    far.commit(43, "ic/1;45-47")
    assert far.peer.knows(FEATURE, "g").result()
    assert not far.peer.knows("another feature", "g").result()
    assert far.wire.sent.count("PeerGroupKnown") == 3


def test_question_whether_a_group_is_known_ends_with_the_link(far: FarCommits) -> None:
    far.wire.held = []
    asked = far.peer.knows(FEATURE, "g")
    assert not asked.done
    far.wire.cut()
    for promise in (asked, far.peer.knows(FEATURE, "g")):
        with pytest.raises(PeerLost):
            promise.result()
