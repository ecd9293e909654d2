"""Lag and the status page of two proxies that share the groups, with clients at one of them: on 3.9.1."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka_share_proxy.localkafka.front import Front

from tests.stock.test_observing import figures, status
from tests.support.brokers import OLD, Running
from tests.support.fleet import Fleet
from tests.support.observed_traffic import DONE, RECORDS, Observed, at_work
from tests.support.raw import until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def fronts(running: Running) -> list[Front]:
    fleet = Fleet(running, running.cluster(OLD))
    made = [fleet.start("a"), fleet.start("b")]
    fleet.settled("a", "b")
    return made


@pytest.fixture(scope="module")
def observed(fronts: list[Front]) -> Iterator[Observed]:
    with at_work(fronts[0].bootstrap, lambda kind: f"fleet-{kind}") as names:
        yield names


def test_each_group_has_its_lag_at_its_owner_alone(fronts: list[Front], observed: Observed) -> None:
    share_lags = [figures(front, "ksp_share_group_lag") for front in fronts]
    for group, lag in ((observed.held, RECORDS - DONE), (observed.ordered, RECORDS), (observed.delayed, RECORDS)):
        assert [lags[group] for lags in share_lags if group in lags] == [lag]
    commit_lags = [figures(front, "ksp_commit_group_lag") for front in fronts]
    assert [lags[observed.commits] for lags in commit_lags if observed.commits in lags] == [RECORDS - 10 - 4]


def test_the_status_page_shows_the_other_proxy_and_how_many_groups_it_has(
    fronts: list[Front], observed: Observed
) -> None:
    held_by = []
    for front in fronts:
        page = status(front)
        ((_, link),) = page.table("Other proxies of the fleet")
        assert link == "linked"
        held_by.append({each.text for each in page.all("a")})
    assert not held_by[0] & held_by[1]
    assert held_by[0] | held_by[1] == {observed.held, observed.ordered, observed.delayed, observed.letters}
    for front, others in zip(fronts, reversed(held_by), strict=True):
        if others:
            note = f"Other proxies of the fleet hold {len(others)} groups."
            until(lambda front=front, note=note: note in status(front).text, note)


def test_a_proxy_that_ended_has_no_link(fronts: list[Front], observed: Observed) -> None:
    fronts[1].stop()

    def is_alone() -> bool:
        section = status(fronts[0]).text
        return "no link" in section or "Other proxies of the fleet: none" in section

    until(is_alone, "the link to end", limit_s=30)
    lags = until(
        lambda: (found := figures(fronts[0], "ksp_share_group_lag")).get(observed.held) is not None and found,
        "the groups of the other proxy",
        limit_s=60,
    )
    assert lags[observed.held] == RECORDS - DONE
