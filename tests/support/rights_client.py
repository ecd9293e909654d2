"""Client of a cluster that grants some rights, which the cluster in one process does not check."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.brokers.queries import about_topics
from kafka_share_proxy.brokers.topic_settings import POLICY, REQUESTED_SETTINGS
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import Address

ALL = 3576


class RightsClient:
    """Responses about topics with rights and codes, all with the same settings and number of partitions."""

    def __init__(self, partitions: int, **bits: int) -> None:
        """`bits`: authorized operations by topic."""
        self.partitions, self.bits = partitions, bits
        self.codes = dict.fromkeys(bits, 0)
        """Error codes of Metadata by topic."""
        self.settings = {POLICY: "compact"}
        self.settings_code = ErrorCode.NONE
        self.heartbeat_code, self.coordinator_code = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE

    async def metadata(self, names: list[str]) -> tuple[Any, None]:
        return await self.send_request(ApiKey.METADATA, about_topics(names))

    async def send_request(self, key: int, query: Any) -> tuple[Any, None]:
        responses = {
            ApiKey.METADATA: self._metadata,
            ApiKey.FIND_COORDINATOR: self._coordinator,
            ApiKey.HEARTBEAT: lambda _: messages.HeartbeatResponse(error_code=self.heartbeat_code),
            ApiKey.DESCRIBE_CONFIGS: self._settings,
        }
        return responses[ApiKey(key)](query), None

    def broker_addresses(self, metadata: messages.MetadataResponse) -> dict[int, Address]:
        return {broker.node_id: Address(broker.host, broker.port) for broker in metadata.brokers or ()}

    def _metadata(self, query: Any) -> Any:
        message = messages.MetadataResponse
        partitions = [message.MetadataResponsePartition(partition_index=n) for n in range(self.partitions)]
        topics = [
            message.MetadataResponseTopic(
                name=each.name,
                error_code=self.codes[each.name],
                partitions=[] if self.codes[each.name] else partitions,
                topic_authorized_operations=self.bits[each.name],
            )
            for each in query.topics
        ]
        return message(topics=topics)

    def _coordinator(self, query: Any) -> Any:
        message = messages.FindCoordinatorResponse
        entry = message.Coordinator(key=query.coordinator_keys[0], node_id=1, error_code=self.coordinator_code)
        return message(coordinators=[entry])

    def _settings(self, query: Any) -> Any:
        """A broker that refuses shows no settings."""
        message = messages.DescribeConfigsResponse
        (resource,) = query.resources
        assert (resource.resource_type, resource.configuration_keys) == (2, list(REQUESTED_SETTINGS))
        shown = {} if self.settings_code else self.settings
        configs = [message.DescribeConfigsResourceResult(name=name, value=value) for name, value in shown.items()]
        result = message.DescribeConfigsResult(
            error_code=self.settings_code, resource_type=2, resource_name=resource.resource_name, configs=configs
        )
        return message(results=[result])
