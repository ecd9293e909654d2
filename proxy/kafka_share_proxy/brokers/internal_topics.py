"""Compacted topics of the proxy's own: created if they are missing, with their leaders.

For one task at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.queries import Resource, about_settings
from kafka_share_proxy.brokers.topic_settings import REQUESTED_SETTINGS, TopicSettings
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost, error_name
from kafka_share_proxy.wire.values import UNKNOWN_NODE, ZERO_UUID, Address

OFFSETS_TOPIC = "__consumer_offsets"
REPLICAS_MAX = 3
CREATE_MS = 10_000
MESSAGE_BYTES = 1 << 20
COMPACTED = {
    "max.message.bytes": str(MESSAGE_BYTES),
    "cleanup.policy": "compact",
    "segment.bytes": str(8 << 20),
    "min.cleanable.dirty.ratio": "0.2",
}
"""Settings at creation. Segments are small because only closed ones are compacted, and a start reads everything."""
REFUSALS = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION})
"""Errors for a missing right on the topic."""


class TopicRefused(ProxyError):
    """A topic of the proxy's own is not usable and cannot be created or corrected."""


class TopicUnsafe(TopicRefused):
    """A topic of the proxy's own has settings with which brokers delete confirmed records."""


@dataclass(frozen=True, slots=True)
class TopicLeaders:
    """Leaders of the partitions, and addresses of the brokers."""

    partitions: int
    leaders: dict[int, int]
    """Partitions without a leader are left out."""
    addresses: dict[int, Address]
    topic_id: bytes = ZERO_UUID
    """Changes when the topic is deleted and created anew (KIP-516). Zero if the brokers do not report it."""
    replicas: int = 0
    """Lowest number of replicas of a partition. 0 if it is not known."""
    excess_partitions: int = 0

    @property
    def is_whole(self) -> bool:
        return len(self.leaders) == self.partitions

    def address_of(self, partition: int) -> Address | None:
        return self.addresses.get(self.leaders.get(partition, UNKNOWN_NODE))


class InternalTopic:
    """Topic of the proxy's own."""

    def __init__(
        self, client: ClusterClient, name: str, partitions: int, configs: Mapping[str, str] = COMPACTED
    ) -> None:
        self._client = client
        self._name = name
        self._partitions = partitions
        self._configs = configs

    async def leaders(self, *, may_have_grown: bool = False) -> TopicLeaders | None:
        """Return the leaders of the partitions, or None if the topic does not exist.

        Args:
            may_have_grown: accept a topic with more partitions, because it is in use already.

        Raises:
            TopicRefused: it has another number of partitions, or the proxy may not see it.
            UpstreamLost, AuthenticationFailed: no server responds.
        """
        response, _ = await self._client.metadata([self._name])
        (topic,) = response.topics
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if topic.error_code in REFUSALS:
            raise self.refused("DESCRIBE")
        addresses = self._client.broker_addresses(response)
        if topic.error_code != ErrorCode.NONE:
            return TopicLeaders(self._partitions, {}, addresses)
        excess = len(topic.partitions) - self._partitions
        if excess and not (may_have_grown and excess > 0):
            raise TopicRefused(
                f"topic {self._name} has {len(topic.partitions)} partitions and must have {self._partitions}: its "
                f"records are found by that number; if nothing depends on it, delete the topic and the proxy makes it "
                f"anew"
            )
        used = [each for each in topic.partitions if each.partition_index < self._partitions]
        leaders = {p.partition_index: p.leader_id for p in used if p.leader_id != UNKNOWN_NODE}
        replicas = min([len(p.replica_nodes or ()) for p in used], default=0)
        topic_id = bytes(topic.topic_id or ZERO_UUID)
        return TopicLeaders(self._partitions, leaders, addresses, topic_id, replicas, excess)

    async def settings(self, leaders: TopicLeaders) -> TopicSettings:
        """Return the settings of the topic, `leaders` being the result of `leaders`.

        Raises:
            UpstreamLost, AuthenticationFailed: no server responds, or the one that does has no such topic yet.
        """
        request = about_settings(Resource.TOPIC, self._name, REQUESTED_SETTINGS)
        response, _ = await self._client.send_request(ApiKey.DESCRIBE_CONFIGS, request)
        (result,) = response.results
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UpstreamLost(f"topic {self._name} is not known yet where its settings were requested")
        values = {config.name: config.value for config in result.configs or () if config.value is not None}
        return TopicSettings(
            topic=self._name,
            server=str(next(iter(leaders.addresses.values()), "BROKER:9092")),
            values=values if result.error_code == ErrorCode.NONE else {},
            unknown="" if result.error_code == ErrorCode.NONE else error_name(result.error_code),
            replicas=leaders.replicas,
            excess_partitions=leaders.excess_partitions,
        )

    async def create(self) -> bool:
        """False if another proxy just did, or its existence is not known yet.

        Raises:
            TopicRefused: the cluster refuses. UpstreamLost, AuthenticationFailed: no server responds.
        """
        replicas = await self._replicas()
        request = messages.CreateTopicsRequest
        configs = {**self._configs, "min.insync.replicas": str(max(1, replicas - 1))}
        topic = request.CreatableTopic(
            name=self._name,
            num_partitions=self._partitions,
            replication_factor=replicas,
            assignments=[],
            configs=[request.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        response, _ = await self._client.send_request(
            ApiKey.CREATE_TOPICS, request(topics=[topic], timeout_ms=CREATE_MS)
        )
        (result,) = response.topics
        if result.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT):
            return bool(result.error_code == ErrorCode.NONE)
        if result.error_code == ErrorCode.NOT_CONTROLLER:
            raise UpstreamLost("the server of this request is not the controller")
        text = result.error_message or error_name(result.error_code)
        raise TopicRefused(f"topic {self._name} cannot be created: {text}")

    def refused(self, right: str) -> TopicRefused:
        return TopicRefused(f"the proxy's own identity may not {right} topic {self._name}")

    def check(self, code: int, right: str) -> None:
        """Raise TopicRefused if this right is missing, else UpstreamLost."""
        if code in REFUSALS:
            raise self.refused(right)
        if code != ErrorCode.NONE:
            raise UpstreamLost(f"topic {self._name}: {error_name(code)}")

    async def _replicas(self) -> int:
        response, _ = await self._client.metadata([OFFSETS_TOPIC])
        (topic,) = response.topics
        counts = [len(partition.replica_nodes or ()) for partition in topic.partitions or ()]
        return min(counts) if counts else min(REPLICAS_MAX, len(response.brokers))
