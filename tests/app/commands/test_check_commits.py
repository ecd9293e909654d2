"""Report of `check` about individual commits."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.app.commands import check_commits, check_state
from kafka_share_proxy.app.commands.check_state import StateRights
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.commits.state_records import INDIVIDUAL_COMMITS

from tests.app.commands.test_check_state import ALL, Client
from tests.app.serving.test_composition import config as config_of

COMPLETE = StateRights(state=INDIVIDUAL_COMMITS)
"""An identity that lacks nothing."""


def config(**commits: Any) -> Config:
    return config_of(commits=commits)


async def test_rights_are_those_on_the_topic_and_the_writers_of_ranges() -> None:
    client = Client()
    assert list(check_commits.judge(config(), await check_commits.send_request(client))) == []  # type: ignore[arg-type]
    client.bits = ALL & ~(1 << check_state.WRITE)
    assert list(check_commits.judge(config(), await check_commits.send_request(client))) == [  # type: ignore[arg-type]
        "individual commits will be off: the proxy's own identity lacks WRITE on topic __individual_commit_offsets"
    ]


def test_without_an_identity_it_says_what_serves_without() -> None:
    (text,) = check_commits.judge(config(), None)
    assert text.startswith("individual commits will be off")
    assert "commits.state: memory" in text


def test_nothing_is_missing_where_nothing_is_kept() -> None:
    lacking = StateRights(missing=("READ",), state=INDIVIDUAL_COMMITS)
    assert list(check_commits.judge(config(serve=False), lacking)) == []
    assert list(check_commits.judge(config(state="memory"), None)) == []


def test_how_they_are_served_is_told_in_a_line() -> None:
    assert check_commits.line(config(serve=False), None) == "Individual commits: off (commits.serve)."
    assert check_commits.line(config(), COMPLETE) == (
        "Individual commits: of every group, up to 10000 ranges of a partition, kept in topic "
        "__individual_commit_offsets."
    )
    told = check_commits.line(config(groups="etl-*", ranges_max=5, state="memory"), None)
    assert (
        told
        == "Individual commits: of groups etl-*, up to 5 ranges of a partition, kept in memory, until the proxy ends."
    )


def test_the_line_does_not_contradict_the_remarks() -> None:
    lacking = StateRights(missing=("READ",), state=INDIVIDUAL_COMMITS)
    for found in (lacking, None):
        assert check_commits.line(config(), found) == "Individual commits: will be off, for the reasons above."


def test_topic_that_is_not_compacted_is_an_obstacle_and_no_remark() -> None:
    found = StateRights(unsafe="the topic is not compacted", risks=("few replicas",), state=INDIVIDUAL_COMMITS)
    assert list(check_commits.judge(config(), found)) == []
    assert list(check_commits.obstacles(config(), found)) == [
        "individual commits would be lost: the topic is not compacted"
    ]
    assert check_commits.risks(config(), found) == ("few replicas",)
    assert list(check_commits.obstacles(config(state="memory"), found)) == []
