"""The command `commits` at real brokers: it needs no proxy, and sees what clients without one have left."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka_share_proxy.app import cli
from kafka_share_proxy.commits.state_records import TOPIC
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.topic_ids import topic_id_text
from typer.testing import CliRunner

from tests.support.brokers import NEW, OLD, Running
from tests.support.raw import Raw, until

pytestmark = pytest.mark.broker

Fresh = Callable[[str], str]
NO_TOPICS = bytes(6) + b"\xff\xff\xff\xff"
"""A subscription to nothing (ConsumerProtocolSubscription v0): 4.3.0 does not survive one that it cannot read."""

runner = CliRunner()


class Side:
    """A broker, and a proxy in front of it that may be ended."""

    def __init__(self, running: Running, release: str, state: str) -> None:
        self.kafka: Cluster = running.cluster(release)
        self.front = running.front(self.kafka.bootstrap, {"commits": {"state": state}})
        self.direct, self.through = Raw(self.kafka.bootstrap), Raw(self.front.bootstrap)

    def close(self) -> None:
        self.direct.close()
        self.through.close()

    def commit(self, raw: Raw, group: str, topic: str, offset: int, metadata: str = "", partition: int = 0) -> None:
        entry = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}

        def accepted() -> bool:
            response = raw.send_request(
                "OffsetCommit", 8, on=raw.on_coordinator(group), group_id=group,
                generation_id_or_member_epoch=-1, topics=[{"name": topic, "partitions": [entry]}],
            )  # fmt: skip
            code = response.topics[0].partitions[0].error_code
            assert code in (0, 14, 15), code
            return bool(code == 0)

        until(accepted, "commit is accepted")

    def reported(self, *arguments: str) -> Any:
        result = runner.invoke(cli.app, ["commits", *arguments, "--json", "--upstream", self.kafka.bootstrap])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture(scope="module", params=[f"{OLD} topic", f"{OLD} metadata", f"{NEW} topic"])
def side(request: pytest.FixtureRequest, running: Running) -> Iterator[Side]:
    new_side = Side(running, *request.param.split())
    yield new_side
    new_side.close()


def test_what_is_done_and_what_is_not_is_reported_with_no_proxy_running(side: Side, fresh: Fresh) -> None:
    """Ranges in their topic, of a client without a proxy, plain offsets, and how old the oldest hole is."""
    group, topic, old = fresh("group"), fresh("topic"), fresh("topic")
    created = side.direct.create_topic(topic, 3)
    for partition in range(3):
        side.direct.produce(created, 60, partition=partition)
    topic_id = topic_id_text(created.topic_id)
    side.direct.create_topic(old, 1)
    written = time.time()
    side.commit(side.direct, group, topic, 10, "ic/1;12-13", partition=1)
    side.commit(side.through, group, topic, 3, "ic/1;5-7,20-20;u=mine")
    side.commit(side.through, group, topic, 3, "ic/1;3-4,30-39")
    side.commit(side.through, group, topic, 55, "user text", partition=2)
    side.front.stop()
    report = side.reported(group)
    ages = [each["oldest_hole"].pop("age_s") for each in report["partitions"] if each["oldest_hole"]]
    assert report == {
        "group": group,
        "partitions": [
            _reported(topic, 0, 8, "", [(20, 20), (30, 39)], (8, 19)),
            _reported(topic, 1, 10, "", [(12, 13)], (10, 11)),
            _reported(topic, 2, 55, "user text", [], None),
        ],
    }
    assert len(ages) == 2
    assert all(0 <= age <= time.time() - written + 5 for age in ages)
    assert side.reported(group, "--holes") == {
        "group": group,
        "holes": [
            {"topic": topic, "partition": 0, "topic_id": topic_id, "first": 8, "last": 19},
            {"topic": topic, "partition": 0, "topic_id": topic_id, "first": 21, "last": 29},
            {"topic": topic, "partition": 1, "topic_id": topic_id, "first": 10, "last": 11},
        ],
    }
    shown = runner.invoke(cli.app, ["commits", group, "--upstream", side.kafka.bootstrap]).stdout
    assert f"{topic}-0" in shown
    assert "20-20,30-39" in shown


def _reported(
    topic: str, partition: int, offset: int, metadata: str, ranges: list[tuple[int, int]], hole: tuple[int, int] | None
) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "committed_offset": offset,
        "metadata": metadata,
        "range_count": len(ranges),
        "ranges": [{"first": first, "last": last} for first, last in ranges],
        "oldest_hole": None if hole is None else {"first": hole[0], "last": hole[1]},
    }


def test_an_unknown_group_is_an_error_that_names_it(side: Side, fresh: Fresh) -> None:
    """The topic of ranges may exist or not, with and without --json."""
    group = fresh("group")
    for format_flag in ([], ["--json"]):
        result = runner.invoke(cli.app, ["commits", group, "--upstream", side.kafka.bootstrap, *format_flag])
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"the brokers list no group '{group}'" in result.stderr


def test_a_group_without_committed_offsets_is_reported_as_such(side: Side, fresh: Fresh) -> None:
    """A member joined and committed nothing, or all offsets were deleted: the group exists."""
    group, topic = fresh("group"), fresh("topic")
    side.direct.create_topic(topic, 1)
    joining = {"group_id": group, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": ""}
    joining |= {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": NO_TOPICS}]}

    def joined() -> bool:
        code = side.direct.send_request("JoinGroup", 3, on=side.direct.on_coordinator(group), **joining).error_code
        assert code in (0, 14, 15, 16), code
        return bool(code == 0)

    until(joined, "the member joins")
    assert side.reported(group)["partitions"] == []
    shown = runner.invoke(cli.app, ["commits", group, "--upstream", side.kafka.bootstrap])
    assert (shown.exit_code, shown.stdout) == (0, f"Group '{group}' has no committed offsets.\n")


def test_ranges_of_a_topic_that_was_made_anew_are_not_shown(side: Side, fresh: Fresh) -> None:
    """They are of other records; a rewind past the proxies takes them away too."""
    side.through.close()
    side.front.stop()
    side.front.start()
    side.through = Raw(side.front.bootstrap)
    group, topic = fresh("group"), fresh("topic")
    created = side.direct.create_topic(topic, 2)
    for partition in range(2):
        side.direct.produce(created, 60, partition=partition)
        side.commit(side.through, group, topic, 3, "ic/1;5-7", partition=partition)
    side.commit(side.direct, group, topic, 1, partition=1)
    assert [each["range_count"] for each in side.reported(group)["partitions"]] == [1, 0]
    side.direct.delete_topic(created)
    again = side.direct.create_topic(topic, 2)
    side.direct.produce(again, 60)
    side.commit(side.direct, group, topic, 4)
    assert [each["range_count"] for each in side.reported(group)["partitions"]] == [0]
    assert side.direct.topic(TOPIC) is not None
