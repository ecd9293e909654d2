"""Topics, partitions and leaders."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.topics import HostedPartition, TopicRegistry, place_replicas
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import running_cluster


def test_replicas_go_around_the_nodes() -> None:
    assert place_replicas((1, 2, 3), 3, 2, 2) == [[3, 1], [1, 2], [2, 3]]


def test_epochs_of_clients_are_compared() -> None:
    partition = HostedPartition(0, [1], 1, leader_epoch=3)
    codes = [partition.epoch_error(each) for each in (-1, 3, 2, 4)]
    assert codes == [0, 0, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH]


async def test_names_are_checked() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("a.b")
        registry: TopicRegistry = cluster.topics
        assert registry.name_error("a.b") is None
        assert "collides" in (registry.name_error("a_b") or "")
        assert "invalid" in (registry.name_error("..") or "")
