"""Report of `check` about share state in the cluster."""

from __future__ import annotations

import pytest
from kafka_share_proxy.feature import state_rights
from kafka_share_proxy.feature.state_rights import StateRights
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE, TOPIC
from kafka_share_proxy.wire.acl_operations import NO_BITS, AclOperation
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.rights_client import ALL, RightsClient


def client_with(bits: int = ALL, code: int = 0) -> RightsClient:
    rights_client = RightsClient(50, **{TOPIC: bits})
    rights_client.codes = {TOPIC: code}
    return rights_client


async def sentences(client: RightsClient) -> list[str]:
    return list(state_rights.obstacles(await state_rights.query_rights(client, SHARE_STATE), SHARE_STATE))  # type: ignore[arg-type]


async def test_identity_with_all_rights_has_no_obstacles() -> None:
    assert await sentences(client_with()) == []


async def test_missing_topic_is_no_obstacle_if_it_may_be_created() -> None:
    client = client_with(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert await sentences(client) == []
    client.bits = {TOPIC: ALL & ~(1 << AclOperation.CREATE)}
    assert await sentences(client) == ["the proxy's own identity lacks CREATE on topic __proxy_share_state"]


@pytest.mark.parametrize("operation", ["READ", "WRITE", "DESCRIBE"])
async def test_each_missing_right_is_named(operation: str) -> None:
    client = client_with(ALL & ~(1 << AclOperation[operation]))
    assert await sentences(client) == [f"the proxy's own identity lacks {operation} on topic __proxy_share_state"]


async def test_identity_without_any_right_is_reported_with_all_of_them() -> None:
    client = client_with(NO_BITS, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    client.heartbeat_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    client.coordinator_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    text = " ".join(await sentences(client))
    for words in ("READ, WRITE, DESCRIBE, CREATE on topic", "READ on group __proxy_owners", "transactional ids"):
        assert words in text


def test_wrong_topic_and_missing_identity_are_named() -> None:
    assert "has 3 partitions and must have 50" in next(state_rights.obstacles(StateRights(partitions=3), SHARE_STATE))
    assert "upstream.sasl" in next(state_rights.obstacles(None, SHARE_STATE))


async def test_topic_that_is_not_compacted_is_an_obstacle_with_its_correction() -> None:
    client = client_with()
    client.settings = {"cleanup.policy": "compact,delete", "retention.ms": "1000"}
    (text,) = await sentences(client)
    assert "cleanup.policy=compact,delete" in text
    assert "--entity-name __proxy_share_state --add-config cleanup.policy=compact" in text


async def test_settings_that_may_not_be_read_are_reported_as_a_risk() -> None:
    client = client_with()
    client.settings_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    rights = await state_rights.query_rights(client, SHARE_STATE)  # type: ignore[arg-type]
    assert list(state_rights.obstacles(rights, SHARE_STATE)) == []
    (risk,) = rights.risks
    assert "DESCRIBE_CONFIGS" in risk
