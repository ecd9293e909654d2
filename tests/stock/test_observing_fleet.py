"""Lag and the status page of two proxies that share the groups, with clients at one of them: on 3.9.1."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka_share_proxy.localkafka.front import Front

from tests.stock.test_observing import figures, status
from tests.support.brokers import OLD, Running
from tests.support.fleet import PARTITIONS, Fleet
from tests.support.observed_traffic import DONE, RECORDS, Observed, at_work
from tests.support.raw import until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def fleet(running: Running) -> Fleet:
    two_proxies = Fleet(running, running.cluster(OLD))
    two_proxies.start("a")
    two_proxies.start("b")
    two_proxies.settled("a", "b")
    return two_proxies


@pytest.fixture
def fronts(fleet: Fleet) -> list[Front]:
    return list(fleet.fronts.values())


@pytest.fixture(scope="module")
def observed(fleet: Fleet) -> Iterator[Observed]:
    with at_work(fleet.fronts["a"].bootstrap, lambda kind: f"fleet-{kind}") as names:
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
        names = {each.text for each in page.all("a")}
        held_by.append({name for name in names if not name.startswith("release ")})
    assert not held_by[0] & held_by[1]
    assert held_by[0] | held_by[1] == {observed.held, observed.ordered, observed.delayed, observed.letters}
    for front, groups_elsewhere in zip(fronts, reversed(held_by), strict=True):
        if groups_elsewhere:
            note = f"Other proxies of the fleet hold {len(groups_elsewhere)} groups."
            until(lambda front=front, note=note: note in status(front).text, note)


def test_the_groups_of_a_proxy_that_ended_have_their_lag_at_the_other(fleet: Fleet, observed: Observed) -> None:
    alone, ended = fleet.fronts["a"], fleet.fronts["b"]
    ended.stop()
    try:
        until(lambda: fleet.owned("a") == PARTITIONS, "the state of the other proxy", limit_s=30)
        assert "linked" not in [each.text for each in status(alone).all("td")]
        expected = {observed.held: RECORDS - DONE, observed.ordered: RECORDS}.items()

        def has_all() -> bool:
            return expected <= figures(alone, "ksp_share_group_lag").items()

        until(has_all, "the lag of all groups, at the next look-up", limit_s=20)
    finally:
        ended.start()
        fleet.settled("a", "b")
