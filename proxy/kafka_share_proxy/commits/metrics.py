"""Metrics of individual commits, named without the prefix `ksp_`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from math import isfinite

from kafka_share_proxy.commits.counters import GroupCommits, HeldSurvey, survey
from kafka_share_proxy.commits.lag import CommitLag, CommitLagSurvey
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.durable.journal import TopicJournal
from kafka_share_proxy.durable.tail import Tail
from kafka_share_proxy.feature.metrics import Metrics, most_by_name


def add(metrics: Metrics, services: CommitServices, tail: Tail | None, lag: CommitLag) -> None:
    """Add all metrics. `tail`: None if ranges are in memory."""
    figures, followed, held = services.figures, services.followed, services.held
    help_text = "Commits of a partition in groups with ranges, by kind; refused by the broker or here."
    metrics.add("commits", "counter", help_text, lambda: figures.commits, "kind")
    help_text = "Time from a change of ranges until it was stored or failed."
    metrics.add("commit_append_seconds", "histogram", help_text, lambda: figures.append_s)
    if isinstance(services.journal, TopicJournal):
        journal = services.journal
        help_text = "Requests that append to the topic of ranges: many commits share one."
        metrics.add("commit_append_requests", "counter", help_text, lambda: journal.appends)
    help_text = "Groups known to commit individually."
    metrics.add("commit_groups", "gauge", help_text, lambda: len(held.groups.keys() | followed.groups.keys()))
    help_text = "Partitions of the topic of ranges whose groups are not known."
    metrics.add("commit_partitions_uncertain", "gauge", help_text, lambda: len(followed.uncertain))
    help_text = "Uncertain partitions with too many groups to remember: all their groups go to the owner."
    metrics.add("commit_partitions_overflowing", "gauge", help_text, lambda: len(followed.overflowing))
    _add_group_metrics(metrics, services)
    _add_lag_metrics(metrics, services, lag)
    if tail is not None:
        _add_tail_metrics(metrics, tail)


def _add_group_metrics(metrics: Metrics, services: CommitServices) -> None:
    """Add metrics by group. Groups with the most ranges are shown by name."""
    latest = [HeldSurvey([], 0)]
    groups_max = services.base.limits.metrics_groups

    def take_survey() -> Generator[None, None, None]:
        latest[0] = yield from survey(services.held, groups_max, services.options.ranges_max)

    def reader(read: Callable[[GroupCommits], int]) -> Callable[[], dict[str, float]]:
        return lambda: {group.group_id: read(group) for group in latest[0].groups}

    metrics.before(take_survey)
    help_text = "Partitions of groups that have 80 % of commits.ranges_max, held here."
    metrics.add("commit_partitions_near_limit", "gauge", help_text, lambda: latest[0].near_limit)
    help_text = "Done ranges above the committed offsets, held here."
    metrics.add("commit_ranges", "gauge", help_text, reader(lambda group: group.ranges), "group")
    help_text = "Offsets not done between the committed offsets and the last ranges, held here."
    metrics.add("commit_offsets_open", "gauge", help_text, reader(lambda group: group.offsets_open), "group")


def _add_lag_metrics(metrics: Metrics, services: CommitServices, lag: CommitLag) -> None:
    """Add lag by group. Groups with the largest lag are shown by name."""
    latest = [CommitLagSurvey()]
    groups_max = services.base.limits.metrics_groups

    def take_survey() -> Generator[None, None, None]:
        latest[0] = yield from lag.survey()

    def shown() -> dict[str, float]:
        return most_by_name(latest[0].by_group, groups_max)

    metrics.add_lookup(lag.refresh)
    metrics.before(take_survey)
    help_text = "Records that the group has not finished, as far as committed offsets and ends of the logs are known."
    metrics.add("commit_group_lag", "gauge", help_text, shown, "group")
    help_text = "Partitions whose lag is not known, and not in ksp_commit_group_lag."
    metrics.add("commit_lag_partitions_unknown", "gauge", help_text, lambda: latest[0].unknown)


def _add_tail_metrics(metrics: Metrics, tail: Tail) -> None:
    help_text = "How old what is known of marked groups may be; -1 before it is known."
    metrics.add("commit_tail_age_seconds", "gauge", help_text, lambda: tail.age_s if isfinite(tail.age_s) else -1.0)
    help_text = "Time from the last append to the topic of ranges until it was read here."
    metrics.add("commit_tail_delay_seconds", "gauge", help_text, lambda: tail.delay_s)
