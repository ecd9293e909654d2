"""Expected appends: which ones are awaited, and which are not."""

from __future__ import annotations

import pytest
from kafka_share_proxy.durable.coming_appends import GATHERS_S, LATE_S, SHARE_MAX_S, ComingAppends

GATHERED_S = 0.01
"""Seconds for which a coordinator of 3.9 gathers commits before it responds to all."""


def learnt(usual_s: float) -> ComingAppends:
    """Return the tracker after many appends of this duration."""
    coming = ComingAppends()
    for _ in range(100):
        coming.begin("before", 1.0)
        coming.end("before", 1.0 + usual_s)
    return coming


def test_append_waits_only_for_those_that_began_before_it() -> None:
    coming = ComingAppends()
    assert not coming.is_one_due(10.0, 10.0)
    coming.begin("later", 10.001)
    assert not coming.is_one_due(10.0, 10.002)
    coming.end("later", 10.002)
    coming.begin("earlier", 9.999)
    assert coming.is_one_due(10.0, 10.002)
    coming.end("earlier", 10.002)
    assert not coming
    assert not coming.is_one_due(10.0, 10.002)


def test_append_does_not_wait_for_those_that_usually_take_longer() -> None:
    coming = learnt(3 * SHARE_MAX_S)
    coming.begin("just sent", 10.0)
    assert not coming.is_one_due(10.0, 10.0)
    almost = 10.0 + 2.5 * SHARE_MAX_S
    assert coming.is_one_due(almost, almost)
    coming.begin("behind it", almost)
    coming.end("just sent", almost)
    assert not coming.is_one_due(almost, almost)


def test_append_does_not_wait_at_a_coordinator_that_gathers_commits() -> None:
    """The client that hears first commits first, and the coordinator gathers for all from then on."""
    coming = learnt(GATHERED_S)
    assert coming.usual_s == pytest.approx(GATHERED_S, rel=1e-3)
    assert coming.usual_s > GATHERS_S
    coming.begin("answered in a moment", 10.0)
    for now in (10.0, 10.0 + GATHERED_S, 10.0 + GATHERED_S + SHARE_MAX_S):
        assert not coming.is_one_due(now, now)


@pytest.mark.parametrize("usual_s", [0.0005, 0.002])
def test_late_append_is_not_waited_for_and_hides_no_other(usual_s: float) -> None:
    coming = learnt(usual_s)
    coming.begin("stuck", 10.0)
    later = 10.0 + 2 * usual_s + LATE_S + 0.001
    assert not coming.is_one_due(later, later)  # given up, and learnt from
    coming.begin("quick", later)
    due = later + coming.usual_s
    assert coming.is_one_due(due, due)
    coming.end("quick", due)
    assert not coming.is_one_due(due, due)
    coming.end("stuck", due)
    assert len(coming) == 0


def test_durations_of_late_appends_count_in_the_average() -> None:
    """A coordinator that has become slow: from then on no append waits in vain."""
    coming, now = learnt(0.0005), 10.0
    for number in range(60):
        coming.begin(number, now)
        now += 0.1
        coming.is_one_due(now, now)
        coming.end(number, now)
    assert coming.usual_s > SHARE_MAX_S
    coming.begin("one more", now)
    assert not coming.is_one_due(now, now)


def test_waiter_is_notified_of_the_next_end_once() -> None:
    """It then decides whether it still waits."""
    coming, reported = ComingAppends(), list[str]()
    coming.begin("one", 1.0)
    coming.begin("other", 1.0)
    coming.on_end = lambda: reported.append("end")
    coming.end("one", 1.1)
    coming.end("one", 1.1)
    coming.end("other", 1.1)
    assert reported == ["end"]
    assert coming.on_end is None
