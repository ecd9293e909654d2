"""Is a group id taken upstream? (sharegroups/README.md rule 3; numbers in brackets are items of tests/oracle)"""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_id_of_another_type_upstream(world, kind):
    """[66]"""
    world.cluster.create("t")
    getattr(world.cluster, f"{kind}_groups").add("g")
    response = world.member().heartbeat(0, ["t"])
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert kind in response.error_message
    assert world.services.coordinator.group("g") is None


def test_id_is_looked_up_once(world):
    world.cluster.create("t")
    member = world.member()
    epoch = member.heartbeat(0, ["t"]).member_epoch
    member.heartbeat(epoch)
    world.member(member_id="b").heartbeat(0, ["t"])
    assert world.cluster.count(15) == 1
