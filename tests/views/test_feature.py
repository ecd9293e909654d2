"""Views, put together."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

import pytest
from kafka_share_proxy.audit.stream import Audit
from kafka_share_proxy.feature.feature import Feature, SharedRules, Stage
from kafka_share_proxy.views import feature as view_feature
from kafka_share_proxy.views.feature import VIEWS
from kafka_share_proxy.views.model.catalog import Binding
from kafka_share_proxy.views.model.plans import Plan
from kafka_share_proxy.views.settings import Views
from kafka_share_proxy.views.stored_state import ViewState
from kafka_share_proxy.wire.definitions.api_key import ApiKey

from tests.support import audit_lines
from tests.support.platforms import platform
from tests.support.view_broker import World


def built(settings: Views, **parts: Any) -> Feature:
    return VIEWS.build(settings, platform(World().services, **parts))


def test_views_are_kept_in_the_cluster_by_default() -> None:
    """And say so where probes look."""
    running = view_feature.new_runtime(Views(), platform(World().services))
    assert isinstance(running.store, ViewState)
    assert running.state() == {"ready": 0, "plans": 0, "kept": "in topic __proxy_views"}
    running.store.off = "no rights"
    assert running.probe().lacks() == "no rights"
    in_memory = built(Views(state="memory"))
    assert in_memory.probe.lacks() == ""
    assert "memory" in str(in_memory.probe.details()["views"])
    assert (len(in_memory.tasks), len(built(Views()).tasks)) == (1, 2)


def test_switched_off_there_is_nothing() -> None:
    """No handler, no store, no watch."""
    feature = built(Views(serve=False))
    assert (feature.apis, feature.tasks, feature.guards) == ({}, (), ())
    assert "views.serve" in feature.probe.off


def test_produce_is_only_inspected_while_a_view_is_known() -> None:
    """It is the hottest path of all; everything else is the same."""
    feature = built(Views())
    catalog, all_keys = feature.services.catalog, built(Views(), is_displayed=True).apis[Stage.NAMES].keys()
    reported: list[AbstractSet[int]] = []
    feature.on_apis(lambda: reported.append(all_keys - feature.apis[Stage.NAMES].keys()))
    assert all_keys - feature.apis[Stage.NAMES].keys() == {ApiKey.PRODUCE}
    catalog.bind("v", Binding(b"v" * 16, b"b" * 16))
    assert reported == [set()]
    catalog.bind("v", None)
    assert reported == [set(), {ApiKey.PRODUCE}]


@pytest.mark.parametrize(
    ("setting", "value"), [("slots_max", 16), ("partitions_max", 99), ("views_max", 7), ("create_wait_s", 2.5)]
)
def test_settings_reach_their_parts(setting: str, value: float) -> None:
    """They have the same name."""
    feature = built(Views.model_validate({setting: value}))
    assert getattr(feature.services.options, setting) == value


def test_plans_that_become_known_are_reported_where_audit_is_on() -> None:
    world = World()
    audit = Audit(world.timers, 100)
    feature = VIEWS.build(Views(), platform(world.services, audit=audit))
    feature.services.catalog.add_plan(Plan("b", (0, 5)))
    log_events = audit_lines.waiting(audit.log)
    assert [event["plan_id"] for event in log_events if event["kind"] == "plan_loaded"] == ["b"]
    assert feature.services.reads.audit is not None


@pytest.mark.parametrize(
    ("topic", "base"), [("__view.s4.orders", "orders"), ("orders", "orders"), ("__view.x.orders", "__view.x.orders")]
)
def test_base_of_a_view_is_in_its_name(topic: str, base: str) -> None:
    assert VIEWS.rules(Views(), SharedRules()).base_of(topic) == base
    assert VIEWS.rules(Views(serve=False), SharedRules()).base_of(topic) == topic
