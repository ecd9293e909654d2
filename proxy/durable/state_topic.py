"""The topic of a state as the cluster has it: made if it is missing, its leaders, who coordinates its writers.

Compacted, replicated as `__consumer_offsets` is, otherwise as its description says. Record batches of `message_bytes`
are more than the proxy makes, whatever the brokers allow by default; where somebody has set less, it makes smaller
ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proxy.brokers.internal_topics import InternalTopic, TopicLeaders, TopicRefused
from proxy.brokers.own_client import OwnClient
from proxy.durable.described_state import DescribedState
from proxy.loop.interfaces import Notes
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode

TOPIC_RESOURCE = 2
"""ConfigResource.Type."""
TRANSACTION = 1
"""Key type of a transactional id (FindCoordinator)."""
MESSAGE_BYTES_CONFIG = "max.message.bytes"


class StateTopic:
    """Asked through the proxy's own client, by one task at a time."""

    def __init__(self, client: OwnClient, state: DescribedState[Any]) -> None:
        self._client = client
        self._state = state
        self._topic = InternalTopic(client, state.topic, state.partitions, state.configs)

    async def aclose(self) -> None:
        """Close what the client keeps open."""
        await self._client.aclose()

    async def leaders(self) -> TopicLeaders | None:
        """The topic as it is; None when it does not exist.

        Raises:
            TopicRefused: it has another number of partitions, or the proxy may not see it.
            UpstreamLost, AuthenticationFailed: no server answers.
        """
        return await self._topic.leaders()

    async def create(self) -> bool:
        """Make it; False when somebody else just did, or nobody knows yet whether it is there.

        Raises:
            TopicRefused: the cluster refuses. UpstreamLost, AuthenticationFailed: no server answers.
        """
        return await self._topic.create()

    async def message_bytes(self, notes: Notes) -> int:
        """The largest record batch that it takes; as it is created where the proxy may not read its settings.

        Raises:
            UpstreamLost, AuthenticationFailed: no server answers.
        """
        request = messages.DescribeConfigsRequest
        resource = request.DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=self._state.topic, configuration_keys=[MESSAGE_BYTES_CONFIG]
        )
        answer, _ = await self._client.ask(ApiKey.DESCRIBE_CONFIGS, request(resources=[resource]))
        found = [config for result in answer.results or () for config in result.configs or ()]
        values = [config.value or "" for config in found if config.name == MESSAGE_BYTES_CONFIG]
        if not values or not values[0].isascii() or not values[0].isdigit():
            assumed = self._state.message_bytes
            notes("state-message-bytes-not-known", topic=self._state.topic, assumed=assumed)
            return assumed
        size = int(values[0])
        if size < self._state.record_bytes:
            notes("state-message-bytes-low", topic=self._state.topic, bytes=size, wanted=self._state.record_bytes)
        return size

    async def coordinators(self, transactional_ids: Iterable[str]) -> dict[str, int]:
        """Transactional id -> node id of its coordinator, of those that have one now.

        Raises:
            TopicRefused: the proxy's own identity may not use the ids. UpstreamLost, AuthenticationFailed.
        """
        keys = list(transactional_ids)
        request = messages.FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=keys)
        answer, _ = await self._client.ask(ApiKey.FIND_COORDINATOR, request)
        refused = [entry for entry in answer.coordinators if _is_refusal(entry.error_code)]
        if refused:
            raise TopicRefused(
                f"the proxy's own identity may not use transactional id {refused[0].key}: it needs WRITE and DESCRIBE "
                f"on transactional ids {keys[0].rstrip('0123456789')}*"
            )
        return {entry.key: entry.node_id for entry in answer.coordinators if entry.error_code == ErrorCode.NONE}


def _is_refusal(code: int) -> bool:
    return code in (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
