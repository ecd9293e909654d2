"""The topic of a state as the cluster has it: made if it is missing, its leaders, who coordinates its writers.

Compacted, replicated as `__consumer_offsets` is, otherwise as its description says. Record batches of `message_bytes`
are more than the proxy makes, whatever the brokers allow by default; where somebody has set less, it makes smaller
ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from proxy.brokers.own_client import OwnClient
from proxy.brokers.own_connection import error_name
from proxy.durable.described_state import DescribedState
from proxy.loop.interfaces import Notes
from proxy.wire import registry
from proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost
from proxy.wire.values import UNKNOWN_NODE, ZERO_UUID, Address

FIND_COORDINATOR, CREATE_TOPICS, DESCRIBE_CONFIGS = 10, 19, 32
TOPIC_RESOURCE = 2
"""ConfigResource.Type."""
TRANSACTION = 1
"""Key type of a transactional id (FindCoordinator)."""
OFFSETS_TOPIC = "__consumer_offsets"
REPLICAS_MAX = 3
CREATE_MS = 10_000
MESSAGE_BYTES_CONFIG = "max.message.bytes"


class TopicRefused(ProxyError):
    """The state topic is not, and cannot be made, what it must be."""


@dataclass(frozen=True, slots=True)
class View:
    """Who leads the partitions, and where the brokers are."""

    partitions: int
    """How many there are."""
    leaders: dict[int, int]
    """State partition -> node id; partitions without a leader are left out."""
    addresses: dict[int, Address]
    """Node id -> upstream address."""
    topic_id: bytes = ZERO_UUID
    """Another one: the topic was deleted and made anew. Zero where the brokers do not tell."""

    @property
    def is_whole(self) -> bool:
        """Whether every partition has a leader."""
        return len(self.leaders) == self.partitions


class StateTopic:
    """Asked through the proxy's own client, by one task at a time."""

    def __init__(self, client: OwnClient, state: DescribedState[Any]) -> None:
        self._client = client
        self._state = state

    async def aclose(self) -> None:
        """Close what the client keeps open."""
        await self._client.aclose()

    async def view(self) -> View | None:
        """The topic as it is; None when it does not exist.

        Raises:
            TopicRefused: it has another number of partitions, or the proxy may not see it.
            UpstreamLost, AuthenticationFailed: no server answers.
        """
        name, partitions = self._state.topic, self._state.partitions
        answer, _ = await self._client.metadata([name])
        (topic,) = answer.topics
        addresses = {
            broker.node_id: self._client.address_of(broker.node_id, Address(broker.host, broker.port))
            for broker in answer.brokers or ()
        }
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if topic.error_code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION):
            raise TopicRefused(f"the proxy's own identity may not DESCRIBE topic {name}")
        if topic.error_code != ErrorCode.NONE:
            return View(partitions, {}, addresses)
        leaders = {p.partition_index: p.leader_id for p in topic.partitions if p.leader_id != UNKNOWN_NODE}
        if len(topic.partitions) != partitions:
            raise TopicRefused(
                f"topic {name} has {len(topic.partitions)} partitions and must have {partitions}: its records are "
                f"found by that number; if nothing depends on it, delete the topic and the proxy makes it anew"
            )
        return View(partitions, leaders, addresses, bytes(topic.topic_id or ZERO_UUID))

    async def create(self) -> bool:
        """Make it; False when somebody else just did, or nobody knows yet whether it is there.

        Raises:
            TopicRefused: the cluster refuses. UpstreamLost, AuthenticationFailed: no server answers.
        """
        replicas = await self._replicas()
        request = registry.message("CreateTopicsRequest")
        configs = {**self._state.configs, "min.insync.replicas": str(max(1, replicas - 1))}
        topic = request.CreatableTopic(
            name=self._state.topic,
            num_partitions=self._state.partitions,
            replication_factor=replicas,
            assignments=[],
            configs=[request.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        answer, _ = await self._client.ask(CREATE_TOPICS, request(topics=[topic], timeout_ms=CREATE_MS))
        (result,) = answer.topics
        if result.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT):
            return bool(result.error_code == ErrorCode.NONE)
        if result.error_code == ErrorCode.NOT_CONTROLLER:
            raise UpstreamLost("the server that was asked is not the controller")
        text = result.error_message or error_name(result.error_code)
        raise TopicRefused(f"topic {self._state.topic} cannot be created: {text}")

    async def message_bytes(self, notes: Notes) -> int:
        """The largest record batch that it takes; as it is created where the proxy may not read its settings.

        Raises:
            UpstreamLost, AuthenticationFailed: no server answers.
        """
        request = registry.message("DescribeConfigsRequest")
        resource = request.DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=self._state.topic, configuration_keys=[MESSAGE_BYTES_CONFIG]
        )
        answer, _ = await self._client.ask(DESCRIBE_CONFIGS, request(resources=[resource]))
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
        request = registry.message("FindCoordinatorRequest")(key_type=TRANSACTION, coordinator_keys=keys)
        answer, _ = await self._client.ask(FIND_COORDINATOR, request)
        refused = [entry for entry in answer.coordinators if _is_refusal(entry.error_code)]
        if refused:
            raise TopicRefused(
                f"the proxy's own identity may not use transactional id {refused[0].key}: it needs WRITE and DESCRIBE "
                f"on transactional ids {keys[0].rstrip('0123456789')}*"
            )
        return {entry.key: entry.node_id for entry in answer.coordinators if entry.error_code == ErrorCode.NONE}

    async def _replicas(self) -> int:
        """As many as `__consumer_offsets` has, else 3 or as many as there are brokers."""
        answer, _ = await self._client.metadata([OFFSETS_TOPIC])
        (topic,) = answer.topics
        found = [len(partition.replica_nodes or ()) for partition in topic.partitions or ()]
        return min(found) if found else min(REPLICAS_MAX, len(answer.brokers))


def _is_refusal(code: Any) -> bool:
    return code in (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
