"""Report of `check` about share groups."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.feature.state_rights import StateRights
from kafka_share_proxy.sharegroups.checks import ShareFindings, ShareGroupCheck
from kafka_share_proxy.sharegroups.dead_letters.letter_checks import LetterFindings
from kafka_share_proxy.sharegroups.settings import ShareGroups

from tests.app.serving.test_composition import A, B, snapshot, versions


def report(findings: ShareFindings | None, **settings: Any) -> Any:
    return ShareGroupCheck(ShareGroups.model_validate(settings)).report(findings, snapshot({1: A}))


def test_missing_right_is_an_obstacle_and_the_line_says_so() -> None:
    findings = ShareFindings(rights=StateRights(missing=("READ",), risks=("few replicas",)))
    judged = report(findings, serve="local")
    assert judged.obstacles == ("the proxy's own identity lacks READ on topic __proxy_share_state",)
    assert judged.risks == ("few replicas",)
    assert judged.line.startswith("Share groups: will be off")


def test_without_an_identity_the_missing_state_is_a_remark() -> None:
    judged = report(None, serve="local")
    assert judged.obstacles == ()
    assert "upstream.sasl" in judged.remarks[-1]


@pytest.mark.parametrize("settings", [{"serve": "upstream"}, {"serve": "local", "state": "memory"}])
def test_rights_do_not_matter_where_no_state_is_kept(settings: dict[str, Any]) -> None:
    judged = report(ShareFindings(rights=StateRights(missing=("READ",), risks=("few replicas",))), **settings)
    assert (judged.obstacles, judged.risks) == ((), ())
    assert "will be off" not in judged.line


def test_findings_about_dead_letters_are_reported_where_state_is_kept() -> None:
    findings = ShareFindings(rights=StateRights(), letters=LetterFindings(("no WRITE",), ("not checked",)))
    judged = report(findings, serve="local")
    assert (judged.obstacles, judged.risks, judged.remarks) == ((), ("no WRITE",), ("not checked",))
    judged = report(findings, serve="local", state="memory")
    assert (judged.risks, judged.remarks) == ((), ())


def test_placement_by_group_is_in_the_line() -> None:
    judged = report(None, state="memory", serve_by_group=[{"groups": "a*", "serve": "local"}])
    assert "served by the proxy or the brokers, by group" in judged.line


HERE_AND_THERE = {"state": "memory", "serve_by_group": [{"groups": "a*", "serve": "local"}]}


def moves(findings: ShareFindings, **settings: Any) -> list[str]:
    """Return the remarks about hand-overs, with brokers that have share groups."""
    return [
        each for each in report(findings, **HERE_AND_THERE, **settings).remarks if "hand-over" in each or "take" in each
    ]


def test_missing_right_for_a_take_back_is_a_remark() -> None:
    (remark,) = moves(ShareFindings(may_act_on_cluster=False))
    assert "lacks CLUSTER_ACTION on the cluster" in remark
    assert moves(ShareFindings()) == []


def test_settings_that_brokers_replace_or_do_not_have_are_remarks() -> None:
    """Only those that differ from what the brokers have."""
    findings = ShareFindings(broker_settings={"group.share.max.size": "200", "group.share.delivery.count.limit": "5"})
    broker = {"group.share.max.size": 200, "group.share.delivery.count.limit": 7}
    (defaults, renewals) = moves(findings, broker=broker, renewal_limits=[{"renewals": 3}])
    assert "group.share.delivery.count.limit 5 (here 7)" in defaults
    assert "max.size" not in defaults
    assert "share_groups.renewal_limits" in renewals


def test_brokers_that_lack_share_groups_are_named_during_an_upgrade() -> None:
    """If no broker has them, there is no remark, because no group can be moved."""
    check = ShareGroupCheck(ShareGroups(state="memory"))
    brokers = {1: A, 2: B}
    upgrading = check.report(ShareFindings(), snapshot(brokers, [versions(), versions(share_fetch=1)])).remarks
    assert any("hand-over waits: broker 2 has no ShareFetch v2" in each for each in upgrading)
    finalizing = check.report(ShareFindings(), snapshot(brokers, [versions(level=0)] * 2)).remarks
    assert any("broker 1 has no share.version=1" in each for each in finalizing)
    old = check.report(ShareFindings(), snapshot(brokers, [versions(share_fetch=1, level=0)] * 2)).remarks
    assert not any("hand-over" in each for each in old)
