"""Which side serves share groups."""

from __future__ import annotations

import pytest
from kafka_share_proxy.brokers.cluster_connection import BrokerVersions
from kafka_share_proxy.sharegroups import serving_side
from kafka_share_proxy.sharegroups.settings import ShareGroups
from kafka_share_proxy.wire.definitions import registry

from tests.app.serving.test_composition import A, B, snapshot, versions


@pytest.mark.parametrize(
    ("serve", "reported", "local"),
    [
        ("auto", [versions(), versions()], False),
        ("auto", [versions(), versions(share_fetch=1)], True),
        ("auto", [versions(), versions(level=0)], True),
        ("local", [versions(), versions()], True),
        ("upstream", [versions(level=0), versions(level=0)], False),
    ],
)
def test_share_groups_live_upstream_only_if_every_broker_serves_them(
    serve: str, reported: list[BrokerVersions], local: bool
) -> None:
    """Unless the setting says so."""
    decided, reason = serving_side.decide(
        ShareGroups.model_validate({"serve": serve}), snapshot({1: A, 2: B}, reported)
    )
    assert decided == local
    assert reason


def test_state_that_lives_here_stays_where_brokers_have_share_groups() -> None:
    """auto looks for its topic: where it is there, groups are chosen one by one."""
    cluster_snapshot = snapshot({1: A})
    topic = registry.message("MetadataResponse").MetadataResponseTopic
    for code, local in ((0, True), (3, False), (29, False)):
        cluster_snapshot.metadata[0].topics = [topic(name="__proxy_share_state", error_code=code)]
        assert serving_side.decide(ShareGroups(), cluster_snapshot)[0] is local
        assert serving_side.decide(ShareGroups(serve="upstream"), cluster_snapshot)[0] is False
    assert serving_side.rules(ShareGroups(), cluster_snapshot).are_mixed


def test_rules_by_group_that_send_some_here_have_them_served_here() -> None:
    """Regardless of the rule for all other groups."""
    rule = [{"groups": "a*", "serve": "local"}]
    for serve in ("auto", "upstream"):
        share_groups = {"serve": serve, "serve_by_group": rule}
        assert serving_side.decide(ShareGroups.model_validate(share_groups), snapshot({1: A}))[0]
        assert serving_side.rules(ShareGroups.model_validate(share_groups), snapshot({1: A})).are_mixed
    here = ShareGroups.model_validate({"serve": "local", "serve_by_group": rule})
    assert not serving_side.rules(here, snapshot({1: A})).are_mixed


def test_versions_without_a_broker_are_no_reason_to_forward() -> None:
    """A cluster without reported versions has no share groups to hide."""
    assert serving_side.decide(ShareGroups(), snapshot({}))[0]
