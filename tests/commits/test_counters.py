"""Counters of individual commits, and the survey for /metrics."""

from __future__ import annotations

from collections.abc import Generator

from kafka_share_proxy.commits.counters import CommitFigures, GroupCommits, HeldSurvey, survey
from kafka_share_proxy.commits.held_state import HeldCommits
from kafka_share_proxy.feature.metrics import OTHERS
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

from tests.support.commit_world import CommitWorld


def survey_result(steps: Generator[None, None, HeldSurvey]) -> HeldSurvey:
    results: list[HeldSurvey] = []

    def whole() -> Generator[None, None, None]:
        results.append((yield from steps))

    for _ in whole():
        pass
    return results[0]


def test_commits_are_counted_by_kind() -> None:
    figures = CommitFigures()
    for code, is_individual in ((None, True), (ErrorCode.NONE, False), (ErrorCode.ILLEGAL_GENERATION, True)):
        figures.count(code, is_individual=is_individual)
    assert figures.commits == {"individual": 1, "plain": 1, "refused": 1}


def test_requests_count_for_each_partition_and_appends_take_their_time() -> None:
    world = CommitWorld(slow=True)
    sent = world.commit_many([("t", 0, 43, "ic/1;45-47"), ("t", 1, 43, None), ("t", 2, 43, "ic/1;9-8")])
    world.timers.advance(0.03)
    while world.journal.appends:
        world.journal.confirm()
    assert sent.codes == [0, 0, ErrorCode.INVALID_REQUEST]
    assert world.services.figures.commits == {"individual": 1, "plain": 1, "refused": 1}
    counts = dict(world.services.figures.append_s.cumulative())
    assert counts["+Inf"] == 2, "the mark of the group, and its range"
    assert counts["0.025"] < 2


def held_of(**ranges: int) -> HeldCommits:
    held = HeldCommits()
    for group, count in ranges.items():
        partition = held.group(group).state_of(TopicPartition("t", 0))
        partition.learn_committed(10, -1, [(20 + 10 * n, 25 + 10 * n) for n in range(count)])
    return held


def test_groups_with_the_most_ranges_are_shown_by_name_and_the_rest_together() -> None:
    held_survey = survey_result(survey(held_of(a=1, b=3, c=2, none=0), 2, 100))
    assert held_survey.groups == [
        GroupCommits("b", 3, 10 + 5 + 5),
        GroupCommits("c", 2, 10 + 5),
        GroupCommits(OTHERS, 1, 10),
    ]
    assert survey_result(survey(HeldCommits(), 2, 100)).groups == [GroupCommits(OTHERS, 0, 0)]


def test_partitions_near_their_limit_are_counted() -> None:
    assert survey_result(survey(held_of(a=7, b=8, c=10), 20, 10)).near_limit == 2


def test_clients_are_served_between_groups() -> None:
    steps = survey(held_of(**{f"g{n}": 1 for n in range(100)}), 20, 10)
    assert sum(1 for _ in steps) >= 5
