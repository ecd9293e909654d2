"""Takeovers: partitions that are released meanwhile, and those that wait while clients use others."""

from __future__ import annotations

import pytest
from kafka_share_proxy.durable.ownership import Takeover
from kafka_share_proxy.durable.partition_log import Replay
from kafka_share_proxy.durable.producer_requests import TakenOver
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE


async def test_takeover_does_not_wait_for_released_partitions():
    takeover = Takeover({1, 2, 3})
    takeover.taken_over = {1: TakenOver(5, 7, 1), 2: TakenOver(6, 7, 1)}
    takeover.replays = {1: Replay(SHARE_STATE.owner_epoch_of, 5)}
    takeover.to_check = {3}
    takeover.remove([1, 3])
    assert takeover.partitions == {2}
    assert (set(takeover.taken_over), takeover.replays, takeover.to_check) == ({2}, {}, set())
    assert takeover.changed.is_set()
    assert not takeover.scope.cancel_called


async def test_takeover_without_partitions_is_cancelled():
    takeover = Takeover({1})
    takeover.remove([1])
    assert takeover.scope.cancel_called


@pytest.mark.parametrize(
    ("has_clients", "restores", "requested", "waits"),
    [
        (True, False, set(), True),
        (True, False, {7}, True),
        (True, False, {7, 2}, False),
        (False, False, set(), False),
        (True, True, set(), False),
    ],
    ids=["no requests", "of others", "of this one", "nobody uses others", "memory has them"],
)
def test_partitions_wait_without_requests_while_clients_use_others(
    has_clients: bool, restores: bool, requested: set[int], waits: bool
) -> None:
    takeover = Takeover({1, 2, 3}, has_clients=has_clients, restores=restores)
    assert takeover.may_wait(requested) == waits
