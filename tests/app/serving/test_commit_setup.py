"""Individual commits, put together: where they are kept, and what passes without a look in Python."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka_share_proxy.app.serving import commit_setup
from kafka_share_proxy.app.serving.commit_setup import CommitRuntime
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.durable.hosted_state import BrokerAccess
from kafka_share_proxy.durable.journal import TopicJournal
from kafka_share_proxy.durable.memory_journal import MemoryJournal
from kafka_share_proxy.forwarding.dispatch import route_table
from kafka_share_proxy.forwarding.dispatch.early_matches import ByKnownGroup
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.dispatch.routes import Kind, Routes, header
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.wire.errors import ErrorCode

from tests.app.serving.test_composition import config
from tests.support.ports import World

NOTES: Any = lambda _event, /, **_context: None  # noqa: E731
ACCESS = BrokerAccess(client=lambda: SimpleNamespace(), settings=SimpleNamespace(), own=None, notes=NOTES)  # type: ignore[arg-type,return-value]


def running(settings: Config) -> CommitRuntime | None:
    reactor: Any = SimpleNamespace()
    return commit_setup.runtime(commit_setup.set_up(settings, World().services, NOTES, "p:1", reactor), ACCESS)


async def test_ranges_are_kept_in_their_topic_unless_told_otherwise() -> None:
    """And the topic is followed."""
    stored, in_memory = running(config()), running(config(commits={"state": "memory"}))
    assert stored is not None
    assert in_memory is not None
    assert isinstance(stored.services.journal, TopicJournal)
    assert isinstance(in_memory.services.journal, MemoryJournal)
    assert (stored.is_stored, in_memory.is_stored) == (True, False)
    assert stored.state() == {"state": "in topic __individual_commit_offsets", "groups": 0}
    assert in_memory.state() == {"state": "in memory", "groups": 0}
    stored.services.followed.uncertain[3] = False
    assert "not known of 1 partitions" in stored.why_not
    assert in_memory.why_not == ""


async def test_tail_knows_what_this_proxy_owns() -> None:
    made = running(config())
    assert made is not None
    assert made.tail is not None
    made.services.gate.open([3])
    assert made.tail.is_owned(3)
    made.services.gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, "moved", [3])
    assert not made.tail.is_owned(3)


def test_switched_off_there_is_nothing() -> None:
    assert running(config(commits={"serve": False})) is None
    assert commit_setup.with_commits(None, {}) == {}


def test_settings_are_those_of_the_handlers() -> None:
    options = commit_setup.options(config(commits={"groups": "etl-*", "ranges_max": 7}))
    assert (options.groups, options.ranges_max) == ("etl-*", 7)


def routes_of(world: World, *, with_share_groups: bool) -> tuple[Routes, Any]:
    commits = commit_setup.set_up(config(), world.services, NOTES, "", None)
    served = share_group_apis.served(world.services) if with_share_groups else {}
    versions = world.services.versions if with_share_groups else EffectiveVersions(Offer())
    everything = commit_setup.with_commits(commits, served)
    return route_table.build(world.services.book, versions, world.services.limits, everything), commits


@pytest.mark.parametrize("with_share_groups", [False, True])
@pytest.mark.parametrize(("key", "version"), [(8, 2), (8, 9), (9, 5), (9, 8), (28, 2), (28, 3), (47, 0)])
def test_commits_and_fetches_pass_at_once_where_nobody_knows_their_group(
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
