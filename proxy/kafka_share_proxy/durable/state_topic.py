"""Topic of a state in the cluster: creation, leaders, coordinators of its producers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.internal_topics import InternalTopic, TopicLeaders, TopicRefused
from kafka_share_proxy.brokers.topic_settings import MESSAGE_BYTES, TopicSettings
from kafka_share_proxy.durable.described_state import DescribedState
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

TRANSACTION = 1


class StateTopic:
    """Topic of a state, used by one task at a time."""

    def __init__(self, client: ClusterClient, state: DescribedState[Any]) -> None:
        self._client = client
        self._state = state
        self._topic = InternalTopic(client, state.topic, state.partitions, state.configs)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def leaders(self, *, may_have_grown: bool = False) -> TopicLeaders | None:
        """Return the leaders of the partitions, or None if the topic does not exist."""
        return await self._topic.leaders(may_have_grown=may_have_grown)

    async def settings(self, leaders: TopicLeaders) -> TopicSettings:
        """See InternalTopic.settings."""
        return await self._topic.settings(leaders)

    async def create(self) -> bool:
        """See InternalTopic.create."""
        return await self._topic.create()

    def message_bytes(self, settings: TopicSettings, notes: Notes) -> int:
        """Return the largest record batch in bytes that the topic accepts."""
        size = settings.number(MESSAGE_BYTES)
        if size is None:
            assumed = self._state.message_bytes
            notes("state-message-bytes-not-known", topic=self._state.topic, assumed=assumed)
            return assumed
        if size < self._state.record_bytes:
            notes("state-message-bytes-low", topic=self._state.topic, bytes=size, wanted=self._state.record_bytes)
        return size

    async def coordinators(self, transactional_ids: Iterable[str]) -> dict[str, int]:
        """Return the coordinators by transactional id. Ids that have none now are left out.

        Raises:
            TopicRefused: the proxy's own identity may not use the ids. UpstreamLost, AuthenticationFailed.
        """
        keys = list(transactional_ids)
        request = messages.FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=keys)
        response, _ = await self._client.send_request(ApiKey.FIND_COORDINATOR, request)
        refused = [entry for entry in response.coordinators if _is_refusal(entry.error_code)]
        if refused:
            raise TopicRefused(
                f"the proxy's own identity may not use transactional id {refused[0].key}: it needs WRITE and DESCRIBE "
                f"on transactional ids {keys[0].rstrip('0123456789')}*"
            )
        return {entry.key: entry.node_id for entry in response.coordinators if entry.error_code == ErrorCode.NONE}


def _is_refusal(code: int) -> bool:
    return code in (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
