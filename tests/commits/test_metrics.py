"""Figures of individual commits on /metrics."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

from kafka_share_proxy.commits import metrics as commit_metrics
from kafka_share_proxy.commits.lag import CommitLag
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.commits.state_records import INDIVIDUAL_COMMITS
from kafka_share_proxy.durable.journal import TopicJournal
from kafka_share_proxy.feature.metrics import Metrics
from kafka_share_proxy.forwarding.limits import Limits

from tests.support.commit_world import CommitWorld


def page_of(services: CommitServices, tail: Any = None, groups_max: int = 1) -> str:
    metrics = Metrics()
    services.base.limits = Limits(metrics_groups=groups_max)
    commit_metrics.add(metrics, services, tail, CommitLag(services))
    return metrics.render().decode()


def test_what_is_held_known_and_counted_is_shown() -> None:
    """Groups by name up to a bound; the rest together."""
    world = CommitWorld(ranges_max=2)
    world.begin(43, "45-47,50-50")
    world.begin(10, "12-12", group="h")
    world.services.followed.groups["elsewhere"] = 0
    world.services.followed.uncertain[3] = True
    page = page_of(world.services)
    for line in (
        'commits_total{kind="individual"} 2.0',
        "commit_groups 3.0",
        "commit_partitions_uncertain 1.0",
        "commit_partitions_overflowing 0.0",
        "commit_partitions_near_limit 1.0",
        'commit_ranges{group="g"} 2.0',
        'commit_ranges{group="(others)"} 1.0',
        'commit_offsets_open{group="g"} 4.0',
        "commit_append_seconds_count 4.0",
    ):
        assert f"ksp_{line}" in page, line
    assert "commit_tail" not in page


def test_requests_to_the_topic_are_counted_where_there_is_one() -> None:
    """Not where ranges are kept in memory."""
    world = CommitWorld()
    assert "append_requests" not in page_of(world.services)
    nothing: Any = None
    journal: Any = TopicJournal(INDIVIDUAL_COMMITS, nothing, nothing, "h:1", nothing)
    world.services.journal, journal.appends = journal, 7
    assert "ksp_commit_append_requests_total 7.0" in page_of(world.services)


def test_age_of_what_is_known_is_shown_where_there_is_a_topic() -> None:
    world = CommitWorld()
    tail: Any = SimpleNamespace(age_s=inf, delay_s=0.25)
    assert "ksp_commit_tail_age_seconds -1.0" in page_of(world.services, tail)
    tail.age_s = 0.5
    page = page_of(world.services, tail)
    assert "ksp_commit_tail_age_seconds 0.5" in page
    assert "ksp_commit_tail_delay_seconds 0.25" in page


def test_lag_is_shown_for_the_groups_with_the_most_and_for_all_others_together() -> None:
    world = CommitWorld()
    topic = world.world.cluster.create("t")
    world.world.cluster.produce(topic, 100)
    world.begin(43, "45-47,50-50")
    world.begin(90, "95-99", group="h")
    services, metrics = world.services, Metrics()
    services.base.limits = Limits(metrics_groups=1)
    commit_metrics.add(metrics, services, None, CommitLag(services))
    assert "ksp_commit_lag_partitions_unknown 2.0" in metrics.render().decode()
    (lookup,) = metrics.lookups
    assert lookup().done
    page = metrics.render().decode()
    assert 'ksp_commit_group_lag{group="g"} 53.0' in page
    assert 'ksp_commit_group_lag{group="(others)"} 5.0' in page
    assert "ksp_commit_lag_partitions_unknown 0.0" in page
