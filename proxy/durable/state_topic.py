"""The topic of share state as the cluster has it: made if it is missing, its leaders, who coordinates its writers.

50 partitions, compacted, replicated as `__consumer_offsets` is. Small segments, because only what is behind the active
one is compacted, and all of it is read at a start. Record batches of MESSAGE_BYTES are more than the proxy makes,
whatever the brokers allow by default; where somebody has set less, it makes smaller ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from proxy.brokers.own_client import OwnClient
from proxy.brokers.own_connection import error_name
from proxy.loop.interfaces import Notes
from proxy.sharegroups.model.snapshot import SNAPSHOT_BYTES_MAX
from proxy.sharegroups.state_records import PARTITIONS, TOPIC
from proxy.wire import registry
from proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost
from proxy.wire.values import UNKNOWN_NODE, Address

FIND_COORDINATOR, CREATE_TOPICS, DESCRIBE_CONFIGS = 10, 19, 32
TOPIC_RESOURCE = 2
"""ConfigResource.Type."""
TRANSACTION = 1
"""Key type of a transactional id (FindCoordinator)."""
OFFSETS_TOPIC = "__consumer_offsets"
REPLICAS_MAX = 3
CREATE_MS = 10_000
MESSAGE_BYTES_CONFIG = "max.message.bytes"
MESSAGE_BYTES = 1 << 20
"""What the topic is created with, and taken to allow where its settings cannot be read."""
CONFIGS = {MESSAGE_BYTES_CONFIG: str(MESSAGE_BYTES)} | {
    "cleanup.policy": "compact",
    "segment.bytes": str(8 << 20),
    "min.cleanable.dirty.ratio": "0.2",
}


class TopicRefused(ProxyError):
    """The state topic is not, and cannot be made, what it must be."""


@dataclass(frozen=True, slots=True)
class View:
    """Who leads the partitions, and where the brokers are."""

    leaders: dict[int, int]
    """State partition -> node id; partitions without a leader are left out."""
    addresses: dict[int, Address]
    """Node id -> upstream address."""

    @property
    def is_whole(self) -> bool:
        """Whether every partition has a leader."""
        return len(self.leaders) == PARTITIONS


class StateTopic:
    """Asked through the proxy's own client, by one task at a time."""

    def __init__(self, client: OwnClient) -> None:
        self._client = client

    async def view(self) -> View | None:
        """The topic as it is; None when it does not exist.

        Raises:
            TopicRefused: it has another number of partitions, or the proxy may not see it.
            UpstreamLost, AuthenticationFailed: no server answers.
        """
        answer, _ = await self._client.metadata([TOPIC])
        (topic,) = answer.topics
        addresses = {
            broker.node_id: self._client.address_of(broker.node_id, Address(broker.host, broker.port))
            for broker in answer.brokers or ()
        }
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if topic.error_code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION):
            raise TopicRefused(f"the proxy's own identity may not DESCRIBE topic {TOPIC}")
        if topic.error_code != ErrorCode.NONE:
            return View({}, addresses)
        leaders = {p.partition_index: p.leader_id for p in topic.partitions if p.leader_id != UNKNOWN_NODE}
        if len(topic.partitions) != PARTITIONS:
            raise TopicRefused(
                f"topic {TOPIC} has {len(topic.partitions)} partitions and must have {PARTITIONS}: its records are "
                f"found by that number; if nothing depends on it, delete the topic and the proxy makes it anew"
            )
        return View(leaders, addresses)

    async def create(self) -> bool:
        """Make it; False when somebody else just did, or nobody knows yet whether it is there.

        Raises:
            TopicRefused: the cluster refuses. UpstreamLost, AuthenticationFailed: no server answers.
        """
        replicas = await self._replicas()
        request = registry.message("CreateTopicsRequest")
        configs = CONFIGS | {"min.insync.replicas": str(max(1, replicas - 1))}
        topic = request.CreatableTopic(
            name=TOPIC,
            num_partitions=PARTITIONS,
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
        raise TopicRefused(f"topic {TOPIC} cannot be created: {result.error_message or error_name(result.error_code)}")

    async def message_bytes(self, notes: Notes) -> int:
        """The largest record batch that it takes; as it is created where the proxy may not read its settings.

        Raises:
            UpstreamLost, AuthenticationFailed: no server answers.
        """
        request = registry.message("DescribeConfigsRequest")
        resource = request.DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configuration_keys=[MESSAGE_BYTES_CONFIG]
        )
        answer, _ = await self._client.ask(DESCRIBE_CONFIGS, request(resources=[resource]))
        found = [config for result in answer.results or () for config in result.configs or ()]
        values = [config.value or "" for config in found if config.name == MESSAGE_BYTES_CONFIG]
        if not values or not values[0].isascii() or not values[0].isdigit():
            notes("state-message-bytes-not-known", topic=TOPIC, assumed=MESSAGE_BYTES)
            return MESSAGE_BYTES
        size = int(values[0])
        if size < SNAPSHOT_BYTES_MAX:
            notes("state-message-bytes-low", topic=TOPIC, bytes=size, wanted=SNAPSHOT_BYTES_MAX)
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
