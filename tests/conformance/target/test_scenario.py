"""Scenario files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka_share_proxy.conformance.target import scenario
from kafka_share_proxy.conformance.target.scenario import ScenarioError

from tests.support.conditions import until
from tests.support.target_client import METADATA, VERSIONS, connected, served

WHOLE = """
seed: 7
nodes: 2
clock: stopped
start_ms: 1700000000000
users: {alice: secret}
topics:
  - {name: orders, partitions: 2, configs: {max.message.bytes: "1000"}}
faults:
  - {api: ShareFetch, error: NOT_LEADER_OR_FOLLOWER, nth: 2}
steps:
  - {do: leaders/move, with: {topic: orders, node: 2}}
  - {do: nodes/2/refuse, at_ms: 60000}
  - do: topics
    with: {name: late}
    when: {api: Metadata, nth: 2}
"""


def parse(text: str) -> scenario.Scenario:
    return scenario.parse(yaml.safe_load(text))


async def test_a_scenario_sets_the_state_at_the_start() -> None:
    loaded = parse(WHOLE)
    assert (loaded.seed, loaded.nodes, loaded.start_ms) == (7, 2, 1_700_000_000_000)
    async with served(nodes=2) as server:
        await scenario.prepare(loaded, server)
        assert not server.clock.runs
        topic = server.cluster.topics.by_name["orders"]
        assert (len(topic.partitions), topic.partitions[0].leader) == (2, 2)
        assert [placed.fault.nth for placed in server.faults] == [2]


async def test_a_step_is_done_at_its_time() -> None:
    async with served(nodes=2) as server:
        await scenario.prepare(parse(WHOLE), server)
        await connected(server, 2)
        server.clock.advance(61)

        await until(lambda: not server.accepts(2))
        with pytest.raises(OSError, match="all attempts"):
            await connected(server, 2)


async def test_a_step_is_done_before_its_request() -> None:
    text = WHOLE.replace("users: {alice: secret}", "")
    async with served(nodes=2) as server:
        await scenario.prepare(parse(text), server)
        client = await connected(server)
        await client.call(VERSIONS)
        names = [{topic.name for topic in (await client.call(METADATA)).topics} for _ in range(3)]
        assert names == [{"orders"}, {"orders", "late"}, {"orders", "late"}]


async def test_a_step_that_fails_later_is_a_failure() -> None:
    text = "clock: stopped\nsteps:\n  - {do: topics/none/delete, at_ms: 10}\n"
    async with served(fails=True) as server:
        await scenario.prepare(parse(text), server)
        server.clock.advance(1)
        await until(lambda: server.failures)
        assert "there is no topic 'none'" in str(server.failures[0])


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"seeds": 1}, "scenario: seeds: there is no such key"),
        ({"topics": [{"name": "t", "partitions": 0}]}, "topics.0.partitions: "),
        ({"faults": [{"api": "Fetsch"}]}, "faults.0.api: is no API"),
        ({"steps": [{"do": "no/such"}]}, "steps.0: there is no action 'no/such'"),
        ({"steps": [{"do": "clock/advance"}]}, "steps.0: clock/advance: ms: is missing"),
        ({"steps": [{"do": "clock/stop", "when": {"api": "No"}}]}, "steps.0.when.api: is no API"),
        ({"steps": [{"do": "clock/stop", "at_ms": 1, "when": {"api": 3}}]}, "at_ms and when exclude each other"),
        ({"clock": "slow"}, "clock: "),
        ([1], "scenario: "),
    ],
)
def test_a_mistake_is_named_with_its_path(values: Any, text: str) -> None:
    with pytest.raises(ScenarioError, match=text):
        scenario.parse(values)


def test_all_mistakes_are_named_together() -> None:
    with pytest.raises(ScenarioError) as error:
        scenario.parse({"a": 1, "nodes": 0})
    assert len(str(error.value).splitlines()) == 2


async def test_a_topic_that_cannot_be_created_is_named() -> None:
    async with served() as server:
        with pytest.raises(ScenarioError, match="Topic name is invalid"):
            await scenario.prepare(scenario.parse({"topics": [{"name": "a b"}]}), server)


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(WHOLE)
    assert scenario.load(str(file)).topics[0].name == "orders"
    file.write_text("")
    assert scenario.load(str(file)).topics == []
    file.write_text("a: [")
    with pytest.raises(ScenarioError, match="is no YAML"):
        scenario.load(str(file))
    with pytest.raises(ScenarioError, match=r"cannot read .*No such file"):
        scenario.load(str(tmp_path / "none.yaml"))
