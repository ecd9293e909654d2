"""Individual commits, put together: where they are kept, and what passes without a look in Python."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from kafka_share_proxy.commits import commit_apis
from kafka_share_proxy.commits import feature as commit_feature
from kafka_share_proxy.commits.feature import INDIVIDUAL, CarriedCommits
from kafka_share_proxy.commits.services import FEATURE, CommitServices
from kafka_share_proxy.commits.settings import Commits
from kafka_share_proxy.commits.state_records import INDIVIDUAL_COMMITS
from kafka_share_proxy.durable.journal import TopicJournal
from kafka_share_proxy.durable.memory_journal import MemoryJournal
from kafka_share_proxy.feature.feature import Feature, SharedRules
from kafka_share_proxy.fleet.carried import CarriedFeatures, CarriedRequests, NothingKept
from kafka_share_proxy.fleet.edge import PeerEdge
from kafka_share_proxy.fleet.group_owners import PeerLost
from kafka_share_proxy.fleet.owner import PeerOwner
from kafka_share_proxy.forwarding.dispatch import route_table
from kafka_share_proxy.forwarding.dispatch.early_matches import ByKnownGroup
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.dispatch.routes import Kind, Routes, header
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.built import in_stages
from tests.support.commit_world import Committed, CommitWorld
from tests.support.far import One, Wire
from tests.support.platforms import NO_CLUSTER, platform
from tests.support.ports import World


def built(settings: Commits, **parts: Any) -> Feature:
    return INDIVIDUAL.build(settings, platform(World().services, **parts))


async def test_ranges_are_kept_in_their_topic_by_default() -> None:
    """And the topic is followed."""
    stored, in_memory = built(Commits()), built(Commits(state="memory"))
    assert isinstance(stored.services.journal, TopicJournal)
    assert stored.services.journal.state is INDIVIDUAL_COMMITS
    assert isinstance(in_memory.services.journal, MemoryJournal)
    assert in_memory.services.followed.tail is None
    place = "in topic __individual_commit_offsets"
    assert stored.probe.details() == {"commits": {"state": place, "groups": 0}}
    assert in_memory.probe.details() == {"commits": {"state": "in memory", "groups": 0}}
    in_metadata = built(Commits(state="metadata"))
    place = "in commit metadata and topic __individual_commit_offsets"
    assert in_metadata.probe.details() == {"commits": {"state": place, "groups": 0}}
    assert in_metadata.services.held.in_metadata
    assert "not known of 50 partitions" in stored.probe.why_not()
    assert in_memory.probe.why_not() == ""


def test_stored_state_is_declared_where_there_is_one() -> None:
    for settings, states in (
        (Commits(), 1),
        (Commits(state="metadata"), 1),
        (Commits(state="memory"), 0),
        (Commits(serve=False), 0),
    ):
        assert len(INDIVIDUAL.states(settings, NO_CLUSTER)) == states


async def test_tail_knows_what_this_proxy_owns() -> None:
    services_platform = platform(World().services)
    services = commit_feature.new_services(Commits(), services_platform)
    tail = services.followed.tail
    assert tail is not None
    services.gate.open([3])
    assert tail.is_owned(3)
    services.gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, "moved", [3])
    assert not tail.is_owned(3)


def test_switched_off_there_is_nothing() -> None:
    feature = built(Commits(serve=False))
    assert (feature.apis, feature.tasks, feature.carried) == ({}, (), None)
    assert "commits.serve" in feature.probe.off


def test_settings_are_those_of_the_handlers() -> None:
    options = commit_feature.options(Commits(groups="etl-*", ranges_max=7))
    assert (options.groups, options.ranges_max) == ("etl-*", 7)


def test_ranges_are_recognised_by_the_rule_that_others_apply() -> None:
    rules = INDIVIDUAL.rules(Commits(groups="etl-*"), SharedRules())
    assert rules.has_ranges("etl-1", "ic/1;43-45")
    assert not rules.has_ranges("other", "ic/1;43-45")
    assert not INDIVIDUAL.rules(Commits(serve=False), SharedRules()).has_ranges("etl-1", "ic/1;43-45")


def routes_of(world: World, *, with_share_groups: bool) -> tuple[Routes, Any]:
    feature = INDIVIDUAL.build(Commits(), platform(world.services, is_displayed=True))
    served = share_group_apis.served(world.services) if with_share_groups else {}
    versions = world.services.versions if with_share_groups else EffectiveVersions(Offer())
    handlers = in_stages(feature, groups=served)
    return route_table.build(world.services.book, versions, world.services.limits, handlers), feature.services


@pytest.mark.parametrize("with_share_groups", [False, True])
@pytest.mark.parametrize(("key", "version"), [(8, 2), (8, 9), (9, 5), (9, 8), (28, 2), (28, 3), (47, 0)])
def test_commits_and_fetches_of_unknown_groups_are_forwarded_immediately(
    key: int, version: int, with_share_groups: bool
) -> None:
    """The walk over requests checks which groups both features know."""
    world = World()
    built, commits = routes_of(world, with_share_groups=with_share_groups)
    route = built[header(key, version)]
    assert route.kind is Kind.INSPECT
    rule = route.wants
    assert isinstance(rule, ByKnownGroup)
    known = [commits.held.groups, commits.followed.groups]
    if with_share_groups and key != 9:
        known.append(world.services.coordinator.groups)
    assert sorted(map(id, rule.groups)) == sorted(map(id, known))
    assert commits.followed.uncertain in rule.unless
    assert rule.words == ((b"ic/",) if key in {8, 28} else ())


NUMBERS = itertools.count(1 << 40)


class FarCommits(CommitWorld):
    """`services` are the owner's; requests of clients come to an edge that owns nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.wire = Wire()
        self.edge = CommitServices(base=self.world.services, journal=self.journal)  # type: ignore[arg-type]
        self.edge.gate.closing(self.edge.gate.all, ErrorCode.COORDINATOR_NOT_AVAILABLE, "elsewhere")
        self.edge.followed.groups["g"] = 0
        carried: CarriedRequests = CarriedCommits(self.services, commit_apis.of_owner(self.services))
        self.peer = PeerEdge({FEATURE: NothingKept()}, self.timers, self.wire.to_owner, lambda: 1)
        carried_features = CarriedFeatures()
        carried_features.add(carried)
        owner = PeerOwner(self.world.services, carried_features, self.wire.to_edge, lambda: 1, NUMBERS)
        self.wire.users = [self.peer, owner]
        fleet = One()
        fleet.peer = self.peer
        self.edge.fleet = fleet
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


def test_link_that_ends_is_15_and_the_owner_requests_the_committed_offset(far: FarCommits) -> None:
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


def test_query_whether_a_group_is_known_ends_with_the_link(far: FarCommits) -> None:
    far.wire.held = []
    requested = far.peer.knows(FEATURE, "g")
    assert not requested.done
    far.wire.cut()
    for promise in (requested, far.peer.knows(FEATURE, "g")):
        with pytest.raises(PeerLost):
            promise.result()
