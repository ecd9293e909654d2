"""Responses of the probes: forwarding, share groups and views are separate."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka_share_proxy.app.observing.readiness import Readiness
from kafka_share_proxy.feature.feature import Probe

OK = {"reachable": True, "refused": False, "trouble": "", "silent": {}}
HOME = {"why_not": "", "off": "", "state": lambda: {"state_partitions": 50}}
PATHS = ("share-groups", "commits", "views")
READY, OTHER = 0, 1


def committing(why_not: str = "", *, is_stored: bool = True) -> Probe:
    topic = "commits" if is_stored else ""
    return Probe(path="commits", topic=topic, why_not=lambda: why_not, details=lambda: {"commits": {"groups": 1}})


def viewing(lacks: str = "") -> Probe:
    return Probe(path="views", lacks=lambda: lacks, details=lambda: {"views": {"plans": 0}})


NO_COMMITS = Probe(path="commits", off="individual commits are switched off (commits.serve)")
NO_VIEWS = Probe(path="views", off="views are switched off (views.serve)")
VIEWS = viewing()


def parts(
    home: Any = None, views: Probe = VIEWS, vanished: dict[int, str] | None = None, commits: Probe = NO_COMMITS
) -> Any:
    shares = Probe(path="share-groups", topic="shares", is_first=True, details=lambda: {"share_groups": "proxy"})
    return SimpleNamespace(
        state=lambda: {"brokers": {"1": "h:2"}},
        vanished=lambda: vanished or {},
        home=None if home is None else _home(**(HOME | home)),
        features=[SimpleNamespace(probe=probe) for probe in (shares, commits, views)],
    )


def _home(why_not: str, off: str, **home: Any) -> SimpleNamespace:
    """With share state alone."""
    return SimpleNamespace(why_not=lambda _topic: why_not, missing=lambda _topic: off, off=off, **home)


def readiness(serving_parts: Any, *, stopping: bool = False, **watch: Any) -> Readiness:
    return Readiness(SimpleNamespace(**(OK | watch)), lambda: serving_parts, lambda: stopping, PATHS)  # type: ignore[arg-type]  # as much of a watch as is looked at


def ready(of: Readiness) -> tuple[bool, bool, bool]:
    """Forwarding, share groups, views."""
    return of.forwarding()[0], of.feature("share-groups")[0], of.feature("views")[0]


def test_a_standby_forwards_and_does_not_serve_share_groups() -> None:
    """A load balancer that goes by /readyz keeps it for everything else."""
    standby = readiness(parts({"why_not": "another proxy (h:1) serves share groups"}))
    assert ready(standby) == (True, False, True)
    assert standby.feature("share-groups")[1]["reasons"] == ["another proxy (h:1) serves share groups"]
    body = standby.forwarding()[1]
    assert (body["reasons"], body["share_groups_ready"], body["views_ready"]) == ([], False, True)


@pytest.mark.parametrize(
    ("serving_parts", "watch", "expected"),
    [
        (parts({}), {}, (True, True, True)),
        (parts(), {}, (True, True, True)),
        (parts(views=NO_VIEWS), {}, (True, True, False)),
        (None, {}, (False, False, False)),
        (parts({}), {"reachable": False, "trouble": "a:1: Connection refused"}, (False, False, False)),
        (parts({}), {"refused": True, "trouble": "wrong password"}, (False, False, False)),
        (parts({"off": "no identity"}), {}, (True, False, True)),
    ],
)
def test_each_probe_has_its_own_response(serving_parts: Any, watch: Any, expected: tuple[bool, bool, bool]) -> None:
    """State loaded, in memory; views off; no broker; a wrong password; share groups without an identity."""
    assert ready(readiness(serving_parts, **watch)) == expected


def test_stopping_proxy_is_not_ready() -> None:
    """No new client should arrive."""
    assert ready(readiness(parts({}), stopping=True)) == (False, False, False)


def test_a_dead_broker_is_named_and_does_not_take_the_proxy_out() -> None:
    """Clients of the other brokers are served, and no other proxy reaches it either."""
    of = readiness(
        parts(vanished={3: "the cluster has not named it for 12 s"}), silent={2: "b:2: Connection refused", -1: "x"}
    )
    is_up, body = of.forwarding()
    assert is_up
    assert body["unreachable"] == {"2": "b:2: Connection refused", "3": "the cluster has not named it for 12 s"}


def test_a_missing_right_is_listed_as_missing_not_as_a_reason() -> None:
    """Plans are not known without rights; views are served."""
    responded, body = readiness(parts(views=viewing("plans are not known"))).feature("views")
    assert (responded, body["missing"], body["reasons"]) == (True, ["plans are not known"], [])
    assert readiness(parts({"off": "no identity"})).feature("share-groups")[1]["missing"] == ["no identity"]


@pytest.mark.parametrize(
    ("serving_parts", "expected", "reported"),
    [
        (parts({}, commits=committing()), True, []),
        (parts(commits=committing(is_stored=False)), True, []),
        (parts({"why_not": "standby"}, commits=committing()), False, ["standby"]),
        (parts({}, commits=committing("not known")), False, ["not known"]),
        (parts({"off": "no identity"}, commits=committing()), False, []),
        (parts({}), False, ["individual commits are switched off (commits.serve)"]),
        (None, False, ["waiting for every broker to report its versions"]),
    ],
)
def test_individual_commits_are_ready_by_themselves(serving_parts: Any, expected: bool, reported: list[str]) -> None:
    """Loaded, in memory; on standby; marks not read; no identity; switched off; no cluster yet."""
    responded, body = readiness(serving_parts).feature("commits")
    assert (responded, body["reasons"]) == (expected, reported)
    if serving_parts is not None:
        is_up = readiness(serving_parts).forwarding()[1]
        assert (is_up["ready"], is_up["commits_ready"]) == (True, expected)
