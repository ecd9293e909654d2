"""Requests about a share group of the brokers, under the proxy's own identity (sharegroups/README.md rules 95-104)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from kafka_share_proxy.brokers.cluster_metadata import Topic
from kafka_share_proxy.brokers.interfaces import ClusterQueries
from kafka_share_proxy.brokers.queries import (
    CoordinatorOf,
    Resource,
    about_coordinators,
    about_settings,
    about_topics,
)
from kafka_share_proxy.loop.waiting import wait_until
from kafka_share_proxy.sharegroups.fetch.start_offsets import offsets_from_response, offsets_request
from kafka_share_proxy.sharegroups.model.settings import LATEST_TIMESTAMP
from kafka_share_proxy.sharegroups.model.snapshot import ACKNOWLEDGED, ARCHIVED, NOTHING_COUNTED, ShareSnapshot
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError
from kafka_share_proxy.wire.topic_ids import topic_id_text
from kafka_share_proxy.wire.values import TopicIdPartition

T = TypeVar("T")

BROKERS_WAIT_S = 30.0
"""Maximum seconds of retries while a coordinator is not ready."""
AGAIN_AFTER_S = 0.5
KEYS_AT_ONCE = 200
"""Maximum number of share partitions in one look-up of their coordinators."""
GROUP_SET = 8
"""Source of a setting that the group itself has (DescribeConfigsResponse.ConfigSource.GROUP_CONFIG)."""
LEAVE = -1
"""Member epoch of a member that leaves."""
DELETE = 1
"""Operation of IncrementalAlterConfigs that removes a setting."""

_NOT_READY = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
    }
)
"""UNKNOWN_TOPIC_OR_PARTITION is also the response while the brokers create their own share state topic.
FENCED_LEADER_EPOCH: a leader has moved, and its epoch is looked up again.
"""


class MoveRefused(ProxyError):
    """The group stays where it is. The text says why, and what to do."""


class _BrokersRefuse(MoveRefused):
    """A broker returned an error."""

    def __init__(self, subject: str, code: int, text: str | None = "") -> None:
        super().__init__(f"the brokers refuse {subject}: {text or 'no reason'} ({code})")
        self.code = code


class DescribedGroup(NamedTuple):
    """Share group as its coordinator describes it."""

    epoch: int
    members: frozenset[str]


class NativePartition(NamedTuple):
    """Share partition that the brokers hold."""

    topic: str
    key: TopicIdPartition


class NativeGroup:
    """One group at the brokers. Every method raises MoveRefused, or a ProxyError if a broker cannot be reached."""

    def __init__(self, services: ShareServices, group_id: str) -> None:
        self._services, self._group_id = services, group_id

    # For a hand-over

    async def names(self, topic_ids: Iterable[bytes]) -> dict[bytes, str]:
        """Return the names of the topics that exist."""
        request = about_topics(ids=sorted(topic_ids))
        response = await self._own.send_request(self._node(), ApiKey.METADATA, request)
        return {bytes(topic.topic_id): topic.name for topic in response.topics if topic.name}

    async def set_settings(self, settings: Mapping[str, str], *, validate_only: bool) -> None:
        entry = messages.IncrementalAlterConfigsRequest.AlterableConfig
        configs = [entry(name=name, value=value) for name, value in sorted(settings.items())]
        await self._alter_settings(configs, validate_only=validate_only)

    async def begin_at(self, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Set the start offsets, by topic and partition. This creates the group."""
        message = messages.AlterShareGroupOffsetsRequest
        topics = [
            message.AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    message.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                    for index, offset in sorted(partitions.items())
                ],
            )
            for name, partitions in sorted(offsets.items())
        ]
        await self._retry_until_ready(lambda: self._begin_at(message(group_id=self._group_id, topics=topics)))

    async def _begin_at(self, request: messages.AlterShareGroupOffsetsRequest) -> None:
        response = await self._own.send_request(await self._coordinator(), ApiKey.ALTER_SHARE_GROUP_OFFSETS, request)
        subject = "the start offsets"
        _check(subject, response.error_code, response.error_message)
        for topic in response.responses:
            for entry in topic.partitions:
                topic_partition = f"{topic.topic_name}-{entry.partition_index}"
                _check(subject, entry.error_code, f"{topic_partition} {entry.error_message or ''}")

    # For a take-back

    async def described(self) -> DescribedGroup:
        return await self._retry_until_ready(self._described)

    async def _described(self) -> DescribedGroup:
        request = messages.ShareGroupDescribeRequest(group_ids=[self._group_id])
        response = await self._own.send_request(await self._coordinator(), ApiKey.SHARE_GROUP_DESCRIBE, request)
        (group,) = response.groups
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise MoveRefused(f"the brokers hold no share group {self._group_id}")
        _check("to describe the group", group.error_code, group.error_message)
        return DescribedGroup(group.group_epoch, frozenset(member.member_id for member in group.members))

    async def settings(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the settings that the group itself has, and all `share.*` in force."""
        request = about_settings(Resource.GROUP, self._group_id, ())
        request.resources[0].configuration_keys = None
        response = await self._own.send_request(self._node(), ApiKey.DESCRIBE_CONFIGS, request)
        (result,) = response.results
        _check("to describe its settings", result.error_code, result.error_message)
        configs = [config for config in result.configs if config.value is not None]
        own = {config.name: str(config.value) for config in configs if config.config_source == GROUP_SET}
        return own, {config.name: str(config.value) for config in configs if config.name.startswith("share.")}

    async def partitions(self) -> list[NativePartition]:
        """Return the share partitions that the group has begun to read."""
        return await self._retry_until_ready(self._listed_partitions)

    async def _listed_partitions(self) -> list[NativePartition]:
        message = messages.DescribeShareGroupOffsetsRequest
        group = message.DescribeShareGroupOffsetsRequestGroup(group_id=self._group_id, topics=None)
        response = await self._own.send_request(
            await self._coordinator(), ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, message(groups=[group])
        )
        (described,) = response.groups
        _check("to describe its offsets", described.error_code, described.error_message)
        return [
            NativePartition(topic.topic_name, TopicIdPartition(bytes(topic.topic_id), partition.partition_index))
            for topic in described.topics
            for partition in topic.partitions
        ]

    async def ends(self, partitions: Sequence[NativePartition]) -> dict[TopicIdPartition, int]:
        """Return the ends of the logs."""
        topics = await self._topics(partitions)
        by_node: dict[int, list[tuple[Topic, int]]] = {}
        for native_partition in partitions:
            topic = topics[native_partition.topic]
            by_node.setdefault(topic.leaders[native_partition.key.partition].node_id, []).append(
                (topic, native_partition.key.partition)
            )
        ends: dict[TopicIdPartition, int] = {}
        for node_id, topic_partitions in by_node.items():
            request = offsets_request(topic_partitions, LATEST_TIMESTAMP)
            response = await self._own.send_request(node_id, ApiKey.LIST_OFFSETS, request)
            for key, (code, offset) in offsets_from_response(self._services, topics, response).items():
                _check("to list the ends of the logs", code)
                ends[key] = offset
        return ends

    async def snapshots(self, partitions: Sequence[NativePartition]) -> dict[TopicIdPartition, ShareSnapshot]:
        """Return the stored state. Share partitions of which no delivery has ended yet are left out."""
        return await self._retry_until_ready(lambda: self._snapshots(partitions))

    async def _snapshots(self, partitions: Sequence[NativePartition]) -> dict[TopicIdPartition, ShareSnapshot]:
        topics = await self._topics(partitions)
        snapshots: dict[TopicIdPartition, ShareSnapshot] = {}
        for node_id, keys in (await self._state_coordinators(partitions)).items():
            message = messages.ReadShareGroupStateRequest
            entries: dict[bytes, messages.ReadShareGroupStateRequest.ReadStateData] = {}
            for native_partition in keys:
                topic_id, partition = native_partition.key
                # The true epoch: a lower one is refused, and a higher one would fence the leader.
                epoch = topics[native_partition.topic].leaders[partition].epoch
                entry = entries.setdefault(topic_id, message.ReadStateData(topic_id=topic_id, partitions=[]))
                entry.partitions.append(message.PartitionData(partition=partition, leader_epoch=epoch))
            request = message(group_id=self._group_id, topics=list(entries.values()))
            response = await self._own.send_request(node_id, ApiKey.READ_SHARE_GROUP_STATE, request)
            snapshots.update(_snapshots_in(response))
        return snapshots

    async def remove(self, members: Iterable[str], settings: Iterable[str]) -> None:
        """Remove the members, the group and its settings."""
        coordinator = await self._coordinator()
        for member_id in sorted(members):
            leave = messages.ShareGroupHeartbeatRequest(
                group_id=self._group_id, member_id=member_id, member_epoch=LEAVE
            )
            await self._own.send_request(coordinator, ApiKey.SHARE_GROUP_HEARTBEAT, leave)
        request = messages.DeleteGroupsRequest(groups_names=[self._group_id])
        response = await self._own.send_request(coordinator, ApiKey.DELETE_GROUPS, request)
        for result in response.results:
            _check("to delete the group", result.error_code)
        entry = messages.IncrementalAlterConfigsRequest.AlterableConfig
        await self._alter_settings(
            [entry(name=name, config_operation=DELETE, value=None) for name in sorted(settings)], validate_only=False
        )

    # Requests

    async def _alter_settings(self, configs: Sequence[Any], *, validate_only: bool) -> None:
        if not configs:
            return
        message = messages.IncrementalAlterConfigsRequest
        resource = message.AlterConfigsResource(
            resource_type=Resource.GROUP, resource_name=self._group_id, configs=list(configs)
        )
        request = message(resources=[resource], validate_only=validate_only)
        response = await self._own.send_request(self._node(), ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
        for result in response.responses:
            _check("the settings", result.error_code, result.error_message)

    async def _retry_until_ready(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat an attempt while the brokers are not ready."""
        timers = self._services.timers
        deadline = timers.now() + BROKERS_WAIT_S
        while True:
            try:
                return await attempt()
            except _BrokersRefuse as refusal:
                if refusal.code not in _NOT_READY or timers.now() >= deadline:
                    raise
            await wait_until(timers, timers.now() + AGAIN_AFTER_S)

    async def _coordinator(self) -> int:
        about = about_coordinators(CoordinatorOf.GROUP, [self._group_id])
        response = await self._own.send_request(self._node(), ApiKey.FIND_COORDINATOR, about)
        coordinator = response.coordinators[0]
        _check("to find the coordinator of the group", coordinator.error_code, coordinator.error_message)
        return coordinator.node_id

    async def _state_coordinators(self, partitions: Sequence[NativePartition]) -> dict[int, list[NativePartition]]:
        """Return the share partitions by the node that keeps their state."""
        by_node: dict[int, list[NativePartition]] = {}
        for begin in range(0, len(partitions), KEYS_AT_ONCE):
            keys = {
                f"{self._group_id}:{topic_id_text(each.key.topic_id)}:{each.key.partition}": each
                for each in partitions[begin : begin + KEYS_AT_ONCE]
            }
            about = about_coordinators(CoordinatorOf.SHARE, list(keys))
            response = await self._own.send_request(self._node(), ApiKey.FIND_COORDINATOR, about)
            for each in response.coordinators:
                if each.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                    raise MoveRefused("the proxy's own identity needs CLUSTER_ACTION on the cluster")
                _check("to find the coordinator of its state", each.error_code, each.error_message)
                by_node.setdefault(each.node_id, []).append(keys[each.key])
        return by_node

    async def _topics(self, partitions: Sequence[NativePartition]) -> dict[str, Topic]:
        """Look up the present leaders and return the topics by name."""
        services, names = self._services, sorted({native_partition.topic for native_partition in partitions})
        response = await self._own.send_request(self._node(), ApiKey.METADATA, about_topics(names))
        services.topology.fold(response, services.timers.now())
        topics = {name: topic for name in names if (topic := services.topology.topic(name)) is not None}
        for native_partition in partitions:
            topic = topics.get(native_partition.topic)
            if (
                topic is None
                or topic.topic_id != native_partition.key.topic_id
                or native_partition.key.partition >= topic.partitions
            ):
                raise _BrokersRefuse(
                    "to describe its topics", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, native_partition.topic
                )
        return topics

    @property
    def _own(self) -> ClusterQueries:
        if self._services.own is None:
            raise MoveRefused("the proxy has no identity of its own at the brokers")
        return self._services.own

    def _node(self) -> int:
        brokers = self._services.topology.brokers
        if not brokers:
            raise MoveRefused("no broker is known yet; try again")
        return min(brokers)


def _check(subject: str, code: int, text: str | None = "") -> None:
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        text = "the proxy's own identity needs CLUSTER_ACTION on the cluster"
    if code != ErrorCode.NONE:
        raise _BrokersRefuse(subject, code, text)


def _snapshots_in(response: messages.ReadShareGroupStateResponse) -> Iterator[tuple[TopicIdPartition, ShareSnapshot]]:
    for topic in response.results:
        for partition in topic.partitions:
            _check("to read its state", partition.error_code, partition.error_message)
            if partition.start_offset < 0:
                continue
            start_offset = partition.start_offset
            batches = tuple(
                (max(batch.first_offset, start_offset), batch.last_offset, batch.delivery_state, batch.delivery_count)
                for batch in partition.state_batches
                if batch.last_offset >= start_offset
            )
            settled = sum(last - first + 1 for first, last, state, _ in batches if state in (ACKNOWLEDGED, ARCHIVED))
            key = TopicIdPartition(bytes(topic.topic_id), partition.partition)
            yield key, ShareSnapshot(start_offset, partition.state_epoch, settled, batches)


def new_snapshot(start_offset: int) -> ShareSnapshot:
    """Return the state of a share partition that begins at an offset."""
    return ShareSnapshot(start_offset, 0, NOTHING_COUNTED, ())
