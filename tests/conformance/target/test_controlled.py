"""A cluster that does actions by their names."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.target.actions import ActionError
from kafka_share_proxy.conformance.target.controlled import open_controlled_target
from kafka_share_proxy.conformance.target.server import TargetOptions


async def test_actions_are_done_in_the_loop_of_the_cluster() -> None:
    async with open_controlled_target(TargetOptions(nodes=2)) as cluster:
        await cluster.do("topics", name="t", partitions=2)
        assert await cluster.do("topics/t/records", values=["a", "b"]) == {"offset": 0}
        assert cluster.cluster.partition("t", 0).log.end == 2
        with pytest.raises(ActionError, match="there is no node 9"):
            await cluster.do("nodes/9/down")
        with pytest.raises(ActionError, match="path: there is no such key"):
            await cluster.do("clock/advance", ms=1, path="x")
