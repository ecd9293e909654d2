"""The topic of a group's dead letters is the one in its settings; at real brokers see tests/stock."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.sharegroups.dead_letters import group_topic
from kafka_share_proxy.sharegroups.dead_letters.group_topic import StoredTarget, TooMuchState, topic_of
from kafka_share_proxy.wire.values import Address

from tests.support.raw import Raw

pytestmark = pytest.mark.broker

TOPIC, COPIES = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"


@pytest.mark.parametrize("cluster", ["kafka_39", "kafka_43"])
def test_a_group_without_the_setting_has_no_topic(
    cluster: str, request: pytest.FixtureRequest, fresh: Callable[[str], str]
) -> None:
    """Neither in the state of a proxy nor at the brokers, of which 3.9 has no settings of groups."""
    kafka: Cluster = request.getfixturevalue(cluster)
    host, port = kafka.bootstrap.split(":")

    async def query_topic() -> str:
        client = ClusterClient([Address(host, int(port))], ClusterClientSettings())
        try:
            return await topic_of(client, fresh("group"))
        finally:
            await client.aclose()

    assert trio.run(query_topic) == ""


def test_targets_of_all_groups_are_those_in_the_state_of_the_proxies(
    proxy_39_quick: Front, kafka_39: Cluster, fresh: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    group, other = fresh("group"), fresh("other")
    with Raw(proxy_39_quick.bootstrap) as raw:
        raw.configure_group(group, {TOPIC: "dlq.a", COPIES: "true"})
        raw.configure_group(other, {"share.delivery.count.limit": "3"})
    host, port = kafka_39.bootstrap.split(":")

    async def query_targets() -> dict[str, StoredTarget]:
        client = ClusterClient([Address(host, int(port))], ClusterClientSettings())
        try:
            return await group_topic.stored_targets(client)
        finally:
            await client.aclose()

    targets = trio.run(query_targets)
    assert targets[group] == StoredTarget("dlq.a", copies_records=True)
    assert other not in targets
    monkeypatch.setattr(group_topic, "OFFSETS_MAX", 0)
    with pytest.raises(TooMuchState, match="at most 0 are read"):
        trio.run(query_targets)
