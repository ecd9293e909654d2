"""Responses of the probes: forwarding, share groups and views are separate."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka_share_proxy.app.observing.readiness import Readiness

OK = {"reachable": True, "refused": False, "trouble": "", "silent": {}}
HOME = {"why_not": "", "off": "", "state": lambda: {"state_partitions": 50}}
VIEWS = {"missing": "", "state": lambda: {"plans": 0}}
READY, OTHER = 0, 1


def committing(why_not: str = "", *, is_stored: bool = True) -> Any:
    return SimpleNamespace(why_not=why_not, is_stored=is_stored, state=lambda: {"groups": 1})


def parts(home: Any = None, views: Any = VIEWS, gone: dict[int, str] | None = None, commits: Any = None) -> Any:
    made = {"where": "proxy", "state": lambda: {"brokers": {"1": "h:2"}}, "gone": lambda: gone or {}}
    return SimpleNamespace(
        **made,
        home=None if home is None else _home(**(HOME | home)),
        views=None if views is None else SimpleNamespace(**views),
        commits=commits,
    )


def _home(why_not: str, off: str, **home: Any) -> SimpleNamespace:
    """With share state alone."""
    return SimpleNamespace(why_not=lambda _topic: why_not, missing=lambda _topic: off, off=off, **home)


def readiness(made: Any, *, stopping: bool = False, **watch: Any) -> Readiness:
    return Readiness(SimpleNamespace(**(OK | watch)), lambda: made, lambda: stopping)  # type: ignore[arg-type]  # as much of a watch as is looked at


def ready(of: Readiness) -> tuple[bool, bool, bool]:
    """Forwarding, share groups, views."""
    return of.forwarding()[0], of.share_groups()[0], of.views()[0]


def test_a_standby_forwards_and_does_not_serve_share_groups() -> None:
    """A load balancer that goes by /readyz keeps it for everything else."""
    standby = readiness(parts({"why_not": "another proxy (h:1) serves share groups"}))
    assert ready(standby) == (True, False, True)
    assert standby.share_groups()[1]["reasons"] == ["another proxy (h:1) serves share groups"]
    body = standby.forwarding()[1]
    assert (body["reasons"], body["share_groups_ready"], body["views_ready"]) == ([], False, True)


@pytest.mark.parametrize(
    ("made", "watch", "expected"),
    [
        (parts({}), {}, (True, True, True)),
        (parts(), {}, (True, True, True)),
        (parts(views=None), {}, (True, True, False)),
        (None, {}, (False, False, False)),
        (parts({}), {"reachable": False, "trouble": "a:1: Connection refused"}, (False, False, False)),
        (parts({}), {"refused": True, "trouble": "wrong password"}, (False, False, False)),
        (parts({"off": "no identity"}), {}, (True, False, True)),
    ],
)
def test_each_probe_has_its_own_answer(made: Any, watch: Any, expected: tuple[bool, bool, bool]) -> None:
    """State loaded, in memory; views off; no broker; a wrong password; share groups without an identity."""
    assert ready(readiness(made, **watch)) == expected


def test_who_stops_is_ready_for_nothing() -> None:
    """No new client should arrive."""
    assert ready(readiness(parts({}), stopping=True)) == (False, False, False)


def test_a_dead_broker_is_named_and_does_not_take_the_proxy_out() -> None:
    """Clients of the other brokers are served, and no other proxy reaches it either."""
    of = readiness(
        parts(gone={3: "the cluster has not named it for 12 s"}), silent={2: "b:2: Connection refused", -1: "x"}
    )
    told, body = of.forwarding()
    assert told
    assert body["unreachable"] == {"2": "b:2: Connection refused", "3": "the cluster has not named it for 12 s"}


def test_what_somebody_has_to_give_is_missing_not_a_reason() -> None:
    """Plans are not known without rights; views are served."""
    views = {"missing": "plans are not known", "state": dict}
    responded, body = readiness(parts(views=views)).views()
    assert (responded, body["missing"], body["reasons"]) == (True, ["plans are not known"], [])
    assert readiness(parts({"off": "no identity"})).share_groups()[1]["missing"] == ["no identity"]


@pytest.mark.parametrize(
    ("made", "expected", "said"),
    [
        (parts({}, commits=committing()), True, []),
        (parts(commits=committing(is_stored=False)), True, []),
        (parts({"why_not": "standby"}, commits=committing()), False, ["standby"]),
        (parts({}, commits=committing("not known")), False, ["not known"]),
        (parts({"off": "no identity"}, commits=committing()), False, []),
        (parts({}), False, ["individual commits are switched off (commits.serve)"]),
        (None, False, ["waiting for every broker to tell its versions"]),
    ],
)
def test_individual_commits_are_ready_by_themselves(made: Any, expected: bool, said: list[str]) -> None:
    """Loaded, in memory; on standby; marks not read; no identity; switched off; no cluster yet."""
    responded, body = readiness(made).commits()
    assert (responded, body["reasons"]) == (expected, said)
    if made is not None:
        told = readiness(made).forwarding()[1]
        assert (told["ready"], told["commits_ready"]) == (True, expected)
