"""Share groups, put together: the side that serves them, the place of their state, its audit."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Literal

import pytest
from kafka_share_proxy.audit.stream import Audit
from kafka_share_proxy.durable.described_state import DescribedState
from kafka_share_proxy.durable.journal import TopicJournal
from kafka_share_proxy.durable.memory_journal import MemoryJournal
from kafka_share_proxy.feature.admin import AdminRequest
from kafka_share_proxy.feature.feature import Feature, Platform, Stage
from kafka_share_proxy.forwarding.dispatch import route_table
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.dispatch.routes import header
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.sharegroups.feature import SHARE_GROUPS, options
from kafka_share_proxy.sharegroups.model.renewal import RenewalBound
from kafka_share_proxy.sharegroups.settings import ShareGroups
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE
from kafka_share_proxy.wire.errors import ErrorCode

from tests.app.serving.test_composition import A, snapshot
from tests.support.platforms import platform
from tests.support.ports import World

LOCAL = ShareGroups(serve="local")


def built(settings: ShareGroups = LOCAL, **parts: Any) -> Feature:
    return SHARE_GROUPS.build(settings, platform(World().services, cluster=snapshot({1: A}), **parts))


def stored_by(feature_platform: Platform) -> list[DescribedState[Any]]:
    """Return the states that features have hosted."""
    assert feature_platform.home is not None
    return [hosted.state for hosted in feature_platform.home.states]


def test_state_in_a_topic_waits_until_it_is_loaded() -> None:
    feature_platform = platform(World().services, cluster=snapshot({1: A}))
    feature = SHARE_GROUPS.build(LOCAL, feature_platform)
    assert stored_by(feature_platform) == [SHARE_STATE]
    assert isinstance(feature.services.journal, TopicJournal)
    assert feature.services.gate.refusal == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert feature.carried is feature.groups is not None
    assert SHARE_GROUPS.states(LOCAL, snapshot({1: A})) == (SHARE_STATE,)
    assert feature.probe.also() == {"state": "in topic __proxy_share_state"}


def test_state_in_memory_is_served_immediately() -> None:
    settings = ShareGroups(serve="local", state="memory")
    feature_platform = platform(World().services, cluster=snapshot({1: A}))
    feature = SHARE_GROUPS.build(settings, feature_platform)
    assert isinstance(feature.services.journal, MemoryJournal)
    assert (stored_by(feature_platform), feature.services.gate.is_open) == ([], True)
    assert SHARE_GROUPS.states(settings, snapshot({1: A})) == ()
    assert feature.probe.also() == {"state": "in memory"}


def test_share_groups_of_the_brokers_have_no_handlers_and_no_services() -> None:
    feature = built(ShareGroups(serve="upstream"))
    assert (feature.apis, feature.services) == ({}, None)
    assert feature.probe.details() == {"share_groups": "brokers"}
    assert SHARE_GROUPS.offers(ShareGroups(serve="upstream"), snapshot({1: A})) == ()


def test_audit_receives_deliveries_where_it_is_on() -> None:
    world = World()
    audit = Audit(world.timers, 100)
    feature = SHARE_GROUPS.build(LOCAL, platform(world.services, cluster=snapshot({1: A}), audit=audit))
    assert feature.services.audit is feature.services.writes.audit is not None
    assert built().services.audit is None


@pytest.mark.parametrize("serve", ["local", "upstream"])
def test_forwarded_share_groups_are_observed_where_audit_is_on(serve: Literal["local", "upstream"]) -> None:
    """Also where the proxy serves the others."""
    world, settings = World(), ShareGroups(serve=serve)
    routes = route_table.build(world.services.book, EffectiveVersions(Offer()), Limits(), {})
    assert built(settings).observed(routes) is routes
    observed = built(settings, audit=Audit(world.timers, 100)).observed(routes)
    assert observed[header(79, 2)].amend is not None


@pytest.mark.parametrize(("serve", "status"), [("local", HTTPStatus.OK), ("upstream", HTTPStatus.NOT_FOUND)])
async def test_admin_page_of_groups_says_where_they_are(serve: Literal["local", "upstream"], status: int) -> None:
    (path,) = SHARE_GROUPS.admin_paths
    response = await built(ShareGroups(serve=serve, state="memory")).pages[path](AdminRequest(method="GET"))
    assert response is not None
    assert response[0] == status


@pytest.mark.parametrize(
    ("settings", "is_fleet", "sees"),
    [
        (LOCAL, False, "all"),
        (LOCAL, True, "all"),
        (ShareGroups.model_validate({"serve_by_group": [{"groups": "a", "serve": "local"}]}), False, "part"),
        (ShareGroups(serve="upstream"), False, "part"),
    ],
)
def test_what_audit_sees_follows_from_who_serves(settings: ShareGroups, is_fleet: bool, sees: str) -> None:
    (coverage,) = built(settings, is_fleet=is_fleet).coverage
    assert (coverage.subject, coverage.sees) == ("share_groups", sees)


def test_handlers_run_in_the_stage_of_groups() -> None:
    assert list(built().apis) == [Stage.GROUPS]


def test_renewal_limits_reach_the_share_requests() -> None:
    """The first that names a group holds; without any renewals are unbounded."""
    written = {"renewal_limits": [{"groups": "jobs-*", "renewals": 3}, {"held_s": 600}]}
    share_options = options(ShareGroups.model_validate(written), 15.0)
    assert share_options.renewal_bound("jobs-1") == RenewalBound(groups="jobs-*", renewals=3)
    assert share_options.renewal_bound("other") == RenewalBound(held_s=600)
    assert options(ShareGroups(), 15.0).renewal_bound("any") is None
