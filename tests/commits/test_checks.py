"""Report of `check` about individual commits."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.brokers.cluster_watch import ClusterSnapshot
from kafka_share_proxy.commits import checks
from kafka_share_proxy.commits.checks import CommitCheck
from kafka_share_proxy.commits.settings import Commits
from kafka_share_proxy.commits.state_records import TOPIC
from kafka_share_proxy.feature.state_rights import StateRights
from kafka_share_proxy.wire.acl_operations import AclOperation

from tests.support.rights_client import ALL, RightsClient

CLUSTER = ClusterSnapshot(brokers={}, metadata=(), versions={}, silent={})
COMPLETE = StateRights()
"""An identity that lacks nothing."""


def config(**commits: Any) -> Commits:
    return Commits(**commits)


async def remarks(client: Any) -> list[str]:
    check = CommitCheck(config())
    return list(check.report(await check.query(client, CLUSTER), CLUSTER).remarks)


async def test_rights_are_those_on_the_topic_and_the_writers_of_ranges() -> None:
    client = RightsClient(50, **{TOPIC: ALL})
    assert await remarks(client) == []
    client.bits[TOPIC] = ALL & ~(1 << AclOperation.WRITE)
    assert await remarks(client) == [
        "individual commits will be off: the proxy's own identity lacks WRITE on topic __individual_commit_offsets"
    ]


def test_without_an_identity_it_says_what_serves_without() -> None:
    (text,) = checks.judge(config(), None)
    assert text.startswith("individual commits will be off")
    assert "commits.state: memory" in text


def test_nothing_is_missing_where_nothing_is_kept() -> None:
    lacking = StateRights(missing=("READ",))
    assert list(checks.judge(config(serve=False), lacking)) == []
    assert list(checks.judge(config(state="memory"), None)) == []


def test_a_line_describes_how_they_are_served() -> None:
    assert checks.line(config(serve=False), None) == "Individual commits: off (commits.serve)."
    assert checks.line(config(), COMPLETE) == (
        "Individual commits: of every group, up to 10000 ranges of a partition, kept in topic "
        "__individual_commit_offsets."
    )
    assert checks.line(config(state="metadata"), COMPLETE) == (
        "Individual commits: of every group, up to 10000 ranges of a partition, kept in commit metadata, or in topic "
        "__individual_commit_offsets if they do not fit."
    )
    line = checks.line(config(groups="etl-*", ranges_max=5, state="memory"), None)
    assert (
        line
        == "Individual commits: of groups etl-*, up to 5 ranges of a partition, kept in memory, until the proxy ends."
    )


def test_the_line_does_not_contradict_the_remarks() -> None:
    lacking = StateRights(missing=("READ",))
    for rights in (lacking, None):
        assert checks.line(config(), rights) == "Individual commits: will be off, for the reasons above."


def test_topic_that_is_not_compacted_is_an_obstacle_and_no_remark() -> None:
    rights = StateRights(unsafe="the topic is not compacted", risks=("few replicas",))
    assert list(checks.judge(config(), rights)) == []
    assert list(checks.obstacles(config(), rights)) == ["individual commits would be lost: the topic is not compacted"]
    assert checks.risks(config(), rights) == ("few replicas",)
    assert list(checks.obstacles(config(state="memory"), rights)) == []
