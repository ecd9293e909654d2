"""Access to brokers for the topics of states."""

from __future__ import annotations

import trio

from tests.support.state_cluster import StateCluster


async def test_every_task_has_a_client_of_its_own(nursery: trio.Nursery) -> None:
    access = StateCluster(nursery).access(lambda *_, **__: None)
    assert access.client() is not access.client()
