"""Dependencies that the states of one proxy share."""

from __future__ import annotations

import trio

from tests.durable.test_state_home import Proxy
from tests.support.state_cluster import StateCluster


async def test_states_of_one_home_share_its_name_lease_and_channels(nursery: trio.Nursery) -> None:
    cluster = StateCluster(nursery)
    first, second = (Proxy(cluster, name, fleet=False) for name in ("a:1", "b:1"))
    host = first.share._host
    assert first.test._host is host
    assert (host.name, host.lease_s) == ("a:1", first.owner.lease_s)
    assert second.share._host.channels is not host.channels
    nursery.cancel_scope.cancel()


async def test_every_task_has_its_own_client(nursery: trio.Nursery) -> None:
    access = StateCluster(nursery).access(lambda *_, **__: None)
    assert access.client() is not access.client()
