"""Report of `check` about share groups."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.feature.state_rights import StateRights
from kafka_share_proxy.sharegroups.checks import ShareFindings, ShareGroupCheck
from kafka_share_proxy.sharegroups.dead_letters.letter_checks import LetterFindings
from kafka_share_proxy.sharegroups.settings import ShareGroups

from tests.app.serving.test_composition import A, sight


def report(found: ShareFindings | None, **settings: Any) -> Any:
    return ShareGroupCheck(ShareGroups.model_validate(settings)).report(found, sight({1: A}))


def test_missing_right_is_an_obstacle_and_the_line_says_so() -> None:
    found = ShareFindings(rights=StateRights(missing=("READ",), risks=("few replicas",)))
    told = report(found, serve="local")
    assert told.obstacles == ("the proxy's own identity lacks READ on topic __proxy_share_state",)
    assert told.risks == ("few replicas",)
    assert told.line.startswith("Share groups: will be off")


def test_without_an_identity_the_missing_state_is_a_remark() -> None:
    told = report(None, serve="local")
    assert told.obstacles == ()
    assert "upstream.sasl" in told.remarks[-1]


@pytest.mark.parametrize("settings", [{"serve": "upstream"}, {"serve": "local", "state": "memory"}])
def test_rights_do_not_matter_where_no_state_is_kept(settings: dict[str, Any]) -> None:
    told = report(ShareFindings(rights=StateRights(missing=("READ",), risks=("few replicas",))), **settings)
    assert (told.obstacles, told.risks) == ((), ())
    assert "will be off" not in told.line


def test_findings_about_dead_letters_are_reported_where_state_is_kept() -> None:
    found = ShareFindings(rights=StateRights(), letters=LetterFindings(("no WRITE",), ("not checked",)))
    told = report(found, serve="local")
    assert (told.obstacles, told.risks, told.remarks) == ((), ("no WRITE",), ("not checked",))
    told = report(found, serve="local", state="memory")
    assert (told.risks, told.remarks) == ((), ())


def test_placement_by_group_is_in_the_line() -> None:
    told = report(None, state="memory", serve_by_group=[{"groups": "a*", "serve": "local"}])
    assert "served by the proxy or the brokers, by group" in told.line
