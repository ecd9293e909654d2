"""Report of `check` about share state in the cluster."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.brokers.queries import about_topics
from kafka_share_proxy.feature import state_rights
from kafka_share_proxy.feature.state_rights import StateRights
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.topic_settings import COMPACTED, described

ALL = 3576


class Client:
    """Client of a cluster that grants some rights."""

    def __init__(self) -> None:
        self.bits, self.topic_code, self.partitions = ALL, ErrorCode.NONE, 50
        self.settings: dict[str, str | None] = dict(COMPACTED)
        self.settings_code = ErrorCode.NONE
        self.heartbeat_code, self.coordinator_code = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE

    async def metadata(self, names: list[str]) -> tuple[Any, None]:
        return await self.send_request(3, about_topics(names))

    async def send_request(self, key: int, query: Any) -> tuple[Any, None]:
        if key == 32:
            return described(query, self.settings, self.settings_code), None
        if key == 12:
            return registry.message("HeartbeatResponse")(error_code=self.heartbeat_code), None
        if key == 10:
            response = registry.message("FindCoordinatorResponse")
            entry = response.Coordinator(key=query.coordinator_keys[0], node_id=1, error_code=self.coordinator_code)
            return response(coordinators=[entry]), None
        response = registry.message("MetadataResponse")
        partitions = [response.MetadataResponsePartition(partition_index=n) for n in range(self.partitions)]
        topic = response.MetadataResponseTopic(
            name=query.topics[0].name,
            error_code=self.topic_code,
            partitions=[] if self.topic_code else partitions,
            topic_authorized_operations=self.bits,
        )
        return response(brokers=[], topics=[topic]), None


async def sentences(client: Client) -> list[str]:
    return list(state_rights.judge(await state_rights.send_request(client, SHARE_STATE), SHARE_STATE))  # type: ignore[arg-type]


async def test_nothing_is_missing() -> None:
    assert await sentences(Client()) == []


async def test_topic_that_is_not_there_yet_is_no_trouble() -> None:
    client = Client()
    client.topic_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await sentences(client) == []
    client.bits = ALL & ~(1 << state_rights.CREATE)
    assert await sentences(client) == ["the proxy's own identity lacks CREATE on topic __proxy_share_state"]


@pytest.mark.parametrize("operation", ["READ", "WRITE", "DESCRIBE"])
async def test_each_missing_right_is_named(operation: str) -> None:
    client = Client()
    client.bits = ALL & ~(1 << getattr(state_rights, operation))
    assert await sentences(client) == [f"the proxy's own identity lacks {operation} on topic __proxy_share_state"]


async def test_everything_may_be_missing() -> None:
    client = Client()
    client.topic_code, client.bits = ErrorCode.TOPIC_AUTHORIZATION_FAILED, state_rights.NO_BITS
    client.heartbeat_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    client.coordinator_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    told = " ".join(await sentences(client))
    for words in ("READ, WRITE, DESCRIBE, CREATE on topic", "READ on group __proxy_owners", "transactional ids"):
        assert words in told


def test_wrong_topic_and_missing_identity_are_named() -> None:
    assert "has 3 partitions and must have 50" in next(state_rights.judge(StateRights(partitions=3), SHARE_STATE))
    assert "upstream.sasl" in next(state_rights.judge(None, SHARE_STATE))


async def test_topic_that_is_not_compacted_is_an_obstacle_with_its_correction() -> None:
    client = Client()
    client.settings = {"cleanup.policy": "compact,delete", "retention.ms": "1000"}
    (text,) = await sentences(client)
    assert "cleanup.policy=compact,delete" in text
    assert "--entity-name __proxy_share_state --add-config cleanup.policy=compact" in text


async def test_settings_that_may_not_be_read_are_told_as_a_risk() -> None:
    client = Client()
    client.settings_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    found = await state_rights.send_request(client, SHARE_STATE)  # type: ignore[arg-type]
    assert list(state_rights.judge(found, SHARE_STATE)) == []
    (risk,) = found.risks
    assert "DESCRIBE_CONFIGS" in risk
