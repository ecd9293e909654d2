"""Actions by name, with values that are checked."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.conformance.target.actions import ACTIONS, ActionError, api_key
from kafka_share_proxy.conformance.target.controlled import ControlledTarget
from kafka_share_proxy.conformance.target.faults import Fault
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import values
from tests.support.target_client import connected, served


async def do(server: ControlledTarget, path: str, **details: Any) -> dict[str, Any]:
    return await server.do(path, **details)


async def test_the_clock_is_stopped_advanced_and_resumed() -> None:
    async with served() as server:
        await do(server, "clock/stop")
        before = server.clock.now()
        await do(server, "clock/advance", ms="1500")
        assert server.clock.now() == pytest.approx(before + 1.5)
        assert not server.clock.runs
        await do(server, "clock/resume")
        assert server.clock.runs


async def test_topics_partitions_and_logs_are_changed() -> None:
    async with served() as server:
        await do(server, "topics", name="t", partitions=2, replication=3)
        topic = server.cluster.topics.by_name["t"]
        first = topic.partitions[0]
        other = next(node for node in (1, 2, 3) if node != first.leader)
        await do(server, "leaders/move", topic="t", partition=0, node=other)
        assert (first.leader, first.leader_epoch) == (other, 1)
        await do(server, "epochs/bump", topic="t")
        assert (first.leader, first.leader_epoch) == (other, 2)
        await do(server, "logs/truncate", topic="t", offset=0)
        await do(server, "logs/delete", topic="t", before=0)
        await do(server, "topics/t/recreate")
        assert server.cluster.topics.by_name["t"].topic_id != topic.topic_id
        await do(server, "topics/t/delete")
        assert "t" not in server.cluster.topics.by_name


async def test_records_are_appended_without_a_producer() -> None:
    async with served() as server:
        await do(server, "topics", name="t", partitions=2)
        assert await do(server, "topics/t/records", values=["a", "b"], partition=1) == {"offset": 0}
        assert await do(server, "topics/t/records", values=["c"], partition=1, key="k") == {"offset": 2}
        client = await connected(server, server.cluster.partition("t", 1).leader)
        message = messages.FetchRequest
        expected = message.FetchPartition(partition=1, partition_max_bytes=1 << 20)
        topic = message.FetchTopic(topic="t", partitions=[expected])
        fetched = (await client.call(message(topics=[topic]), 12)).responses[0].partitions[0]
        assert values(fetched.records) == ["a", "b", "c"]
        with pytest.raises(ActionError, match="there is no topic 'none'"):
            await do(server, "topics/none/records", values=["a"])
        with pytest.raises(ActionError, match="values: List should have at least 1 item"):
            await do(server, "topics/t/records", values=[])


async def test_plans_of_views_are_stored() -> None:
    async with served() as server:
        await do(server, "views/plans", plan="hot", starts=[0, 100])
        assert server.cluster.view_plans["hot"].starts == (0, 100)
        with pytest.raises(ActionError, match="ranges must begin at 0 and ascend"):
            await do(server, "views/plans", plan="cold", starts=[5, 100])


async def test_nodes_coordinators_and_groups_are_changed() -> None:
    async with served() as server:
        await do(server, "nodes/2/down")
        assert server.cluster.nodes_up == (1, 3)
        await do(server, "nodes/2/up")
        assert server.cluster.nodes_up == (1, 2, 3)
        for verb in ("refuse", "accept", "cut"):
            await do(server, f"nodes/3/{verb}")
        for kind in ("group", "transaction", "share"):
            await do(server, "coordinators/move", key="g", node=3, kind=kind)
        await do(server, "groups/configs", group="g", configs={"share.auto.offset.reset": "earliest"})
        assert server.cluster.group_configs.stored("g") == {"share.auto.offset.reset": "earliest"}
        await do(server, "users", user="alice", password="secret")


async def test_settings_may_be_numbers_and_booleans() -> None:
    async with served() as server:
        await do(server, "groups/configs", group="g", configs={"share.record.lock.duration.ms": 15_000})
        assert server.cluster.group_configs.stored("g") == {"share.record.lock.duration.ms": "15000"}
        await do(server, "topics", name="t", configs={"max.message.bytes": 1000, "preallocate": True})
        assert server.cluster.topics.by_name["t"].configs.stored.items() >= {
            ("max.message.bytes", "1000"),
            ("preallocate", "true"),
        }


async def test_faults_are_added_and_deleted() -> None:
    async with served() as server:
        values = {"api": "sharefetch", "error": "NOT_LEADER_OR_FOLLOWER", "nth": 2, "node": 1}
        number = (await do(server, "faults", **values))["number"]
        expected = Fault(api=78, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, nth=2, node=1)
        assert [placed.fault for placed in server.faults] == [expected]
        await do(server, f"faults/{number}/delete")
        await do(server, "faults", api=1, error=6)
        await do(server, "faults/clear")
        assert list(server.faults) == []
        await do(server, "report/clear")


@pytest.mark.parametrize(
    ("path", "values", "text"),
    [
        ("clock/advance", {}, "clock/advance: ms: is missing"),
        ("clock/advance", {"ms": -1}, "clock/advance: ms: .*greater than or equal to 0"),
        ("topics", {"name": "t", "partition": 3}, "topics: partition: there is no such key"),
        ("topics", {"name": "a b"}, "Topic name is invalid"),
        ("topics", {"name": "t", "configs": {"retention": "x"}}, "topics: "),
        ("nodes/9/down", {}, "there is no node 9"),
        ("nodes/x/down", {}, "node: .*valid integer"),
        ("leaders/move", {"topic": "none", "node": 1}, "there is no topic 'none'"),
        ("coordinators/move", {"key": "g", "node": 1, "kind": "other"}, "kind: .*'group'"),
        ("faults", {"api": "Fetsch", "lose": True}, "api: is no API; write its name or key"),
        ("faults", {"error": "NO_SUCH"}, "error: is no error of Kafka"),
        ("faults", {"api": "Fetch"}, "the fault has no effect"),
        ("faults/7/delete", {}, "there is no 7"),
        ("groups/configs", {"group": "g", "configs": {"a.b": "1"}}, "there is no setting a.b"),
        ("groups/configs", {"group": "g", "configs": {"share.auto.offset.reset": "x"}}, "share.auto.offset.reset"),
        ("no/such", {}, "there is no action 'no/such'; actions are clock/stop"),
    ],
)
async def test_a_mistake_is_named_with_its_key(path: str, values: dict[str, Any], text: str) -> None:
    async with served() as server:
        with pytest.raises(ActionError, match=text):
            await do(server, path, **values)


def test_an_api_has_a_name_and_a_key() -> None:
    assert api_key("ShareFetch") == api_key("sharefetch") == api_key(78) == 78
    with pytest.raises(ValueError, match="no API"):
        api_key(999)


def test_every_action_has_documented_values() -> None:
    assert all(model.__doc__ for model, _ in ACTIONS.values())
