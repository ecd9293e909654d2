"""The state of a cluster as JSON."""

from __future__ import annotations

import json

from kafka_share_proxy.conformance.target import cluster_report
from kafka_share_proxy.conformance.target.faults import Fault
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_client import METADATA, connected, served


async def test_nodes_topics_and_faults_are_reported() -> None:
    async with served(nodes=2) as server:
        server.cluster.create_topic("t", 2)
        server.faults.add(Fault(api=1, error=ErrorCode.FENCED_LEADER_EPOCH))
        await server.take_node_down(2)
        await (await connected(server)).call(METADATA)
        state = json.loads(json.dumps(cluster_report.state(server)))
        assert [(node["id"], node["up"]) for node in state["nodes"]] == [(1, True), (2, False)]
        assert [partition["log_end"] for partition in state["topics"][0]["partitions"]] == [0, 0]
        assert state["faults"] == [
            {"number": 1, "selected": 0, "applied": 0, "api": "Fetch", "error": "FENCED_LEADER_EPOCH"}
        ]
        assert state["connections"] == 1
        assert state["clock"]["runs"]
