"""Compacted topics that the proxy keeps for itself: made if they are missing, and where they are led.

Replicated as `__consumer_offsets` is. Asked under the proxy's own identity, by one task at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.brokers.own_client import OwnClient
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost, error_name
from proxy.wire.values import UNKNOWN_NODE, ZERO_UUID, Address

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
"""Small segments, because only what is behind the active one is compacted, and all of it is read at a start."""
REFUSALS = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION})
"""What a broker answers where the proxy's own identity may not do something with the topic."""


class TopicRefused(ProxyError):
    """A topic of the proxy's own is not, and cannot be made, what it must be."""


@dataclass(frozen=True, slots=True)
class TopicLeaders:
    """Who leads the partitions, and where the brokers are."""

    partitions: int
    """How many there are."""
    leaders: dict[int, int]
    """Partition -> node id; partitions without a leader are left out."""
    addresses: dict[int, Address]
    """Node id -> upstream address."""
    topic_id: bytes = ZERO_UUID
    """Another one: the topic was deleted and made anew. Zero where the brokers do not tell (KIP-516)."""

    @property
    def is_whole(self) -> bool:
        """Whether every partition has a leader."""
        return len(self.leaders) == self.partitions

    def address_of(self, partition: int) -> Address | None:
        """Where its leader is; None when it has none, or none that is known."""
        return self.addresses.get(self.leaders.get(partition, UNKNOWN_NODE))


class InternalTopic:
    """One topic of the proxy's own."""

    def __init__(self, client: OwnClient, name: str, partitions: int, configs: Mapping[str, str] = COMPACTED) -> None:
        self._client = client
        self._name = name
        self._partitions = partitions
        self._configs = configs

    async def leaders(self) -> TopicLeaders | None:
        """The topic as it is; None when it does not exist.

        Raises:
            TopicRefused: it has another number of partitions, or the proxy may not see it.
            UpstreamLost, AuthenticationFailed: no server answers.
        """
        answer, _ = await self._client.metadata([self._name])
        (topic,) = answer.topics
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if topic.error_code in REFUSALS:
            raise self.refused("DESCRIBE")
        addresses = {
            broker.node_id: self._client.address_of(broker.node_id, Address(broker.host, broker.port))
            for broker in answer.brokers or ()
        }
        if topic.error_code != ErrorCode.NONE:
            return TopicLeaders(self._partitions, {}, addresses)
        if len(topic.partitions) != self._partitions:
            raise TopicRefused(
                f"topic {self._name} has {len(topic.partitions)} partitions and must have {self._partitions}: its "
                f"records are found by that number; if nothing depends on it, delete the topic and the proxy makes it "
                f"anew"
            )
        leaders = {p.partition_index: p.leader_id for p in topic.partitions if p.leader_id != UNKNOWN_NODE}
        return TopicLeaders(self._partitions, leaders, addresses, bytes(topic.topic_id or ZERO_UUID))

    async def create(self) -> bool:
        """Make it; False when somebody else just did, or nobody knows yet whether it is there.

        Raises:
            TopicRefused: the cluster refuses. UpstreamLost, AuthenticationFailed: no server answers.
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
        answer, _ = await self._client.ask(ApiKey.CREATE_TOPICS, request(topics=[topic], timeout_ms=CREATE_MS))
        (result,) = answer.topics
        if result.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT):
            return bool(result.error_code == ErrorCode.NONE)
        if result.error_code == ErrorCode.NOT_CONTROLLER:
            raise UpstreamLost("the server that was asked is not the controller")
        text = result.error_message or error_name(result.error_code)
        raise TopicRefused(f"topic {self._name} cannot be created: {text}")

    def refused(self, right: str) -> TopicRefused:
        """What is raised where the proxy's own identity lacks this right."""
        return TopicRefused(f"the proxy's own identity may not {right} topic {self._name}")

    def check(self, code: int, right: str) -> None:
        """Raise what an error of a partition means: TopicRefused where this right is missing, else UpstreamLost."""
        if code in REFUSALS:
            raise self.refused(right)
        if code != ErrorCode.NONE:
            raise UpstreamLost(f"topic {self._name}: {error_name(code)}")

    async def _replicas(self) -> int:
        """As many as `__consumer_offsets` has, else 3 or as many as there are brokers."""
        answer, _ = await self._client.metadata([OFFSETS_TOPIC])
        (topic,) = answer.topics
        found = [len(partition.replica_nodes or ()) for partition in topic.partitions or ()]
        return min(found) if found else min(REPLICAS_MAX, len(answer.brokers))
