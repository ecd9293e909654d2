"""Port between `app/` and the features."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.feature.feature import Feature, FeatureKind, Platform, Probe, SharedRules

from tests.support.platforms import NO_CLUSTER, platform
from tests.support.ports import World
from tests.support.small_state import TEST_STATE, HeldTexts, partition_of


class Bare(FeatureKind):
    """A feature that has nothing."""

    section = probe_path = "bare"

    def build(self, settings: Any, platform: Platform) -> Feature:
        return Feature(probe=Probe(path="bare"))


def test_feature_declares_nothing_unless_it_says_so() -> None:
    kind, rules = Bare(), SharedRules()
    assert (kind.offers(None, NO_CLUSTER), kind.states(None, NO_CLUSTER)) == ((), ())
    assert kind.rules(None, rules) is rules
    assert kind.check(None) is None
    built = kind.build(None, platform(World().services))
    assert (built.apis, built.tasks, built.coverage) == ({}, (), ())


def test_rules_without_features_find_no_ranges_and_no_views() -> None:
    rules = SharedRules()
    assert not rules.has_ranges("g", "ic/1;43-45")
    assert rules.base_of("__view.r2.orders") == "__view.r2.orders"


async def test_platform_hosts_a_state_with_its_journal() -> None:
    hosted = platform(World().services).host(TEST_STATE, HeldTexts(), partition_of)
    assert hosted.journal.state is hosted.state is TEST_STATE


async def test_parts_that_are_only_displayed_store_nothing() -> None:
    with pytest.raises(ValueError, match="only displayed"):
        platform(World().services, home=None).host(TEST_STATE, HeldTexts(), partition_of)
