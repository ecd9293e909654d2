"""Migration of a group from one view to another: the start offsets of the new view's partitions (`views migrate`).

Rule: views/README.md 8. A base partition without any committed offset is omitted, because the group's reset policy
applies there before and after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings, ClusterConnection, connection
from kafka_share_proxy.brokers.coordinator_lookup import coordinator_of
from kafka_share_proxy.brokers.queries import TopicEntry
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, error_name
from kafka_share_proxy.wire.values import Address

LIST_OFFSETS_VERSION, OFFSET_COMMIT_VERSION, OFFSET_FETCH_VERSION, DESCRIBE_GROUPS_VERSION = 6, 8, 8, 5
EARLIEST = -2
NO_COMMIT = -1
NO_MEMBER = -1
IDLE = ("Empty", "Dead")


class CannotMigrate(ProxyError):
    """Nothing was changed. The text has the reason."""


@dataclass(frozen=True, slots=True)
class Sliced:
    """A topic with this many slots for each partition of the base. The base itself has one."""

    topic: str
    slots: int


def starts(
    committed: Mapping[int, int], old: Sliced, new: Sliced, partitions: int, begins: Mapping[int, int]
) -> dict[int, int]:
    """Compute the offsets to commit for the partitions of the new topic.

    Args:
        committed: partition of the old topic -> committed offset, without missing ones.
        old, new: slicings of the base. partitions: number of partitions of the base.
        begins: first offset of the log of each base partition.
    """
    starts_by_partition = {}
    for p in range(partitions):
        had = [committed.get(p * old.slots + r, NO_COMMIT) for r in range(old.slots)]
        if max(had) == NO_COMMIT:
            continue
        start = begins[p] if NO_COMMIT in had else min(had)
        starts_by_partition.update({p * new.slots + r: start for r in range(new.slots)})
    return starts_by_partition


class Migration:
    """Reader and writer of committed offsets at the group's coordinator, under the proxy's own identity."""

    def __init__(self, client: ClusterClient, settings: ClusterClientSettings, group: str) -> None:
        self._client = client
        self._settings = settings
        self._group = group

    async def plan(
        self, old: Sliced, new: Sliced, base: TopicEntry, addresses: Mapping[int, Address]
    ) -> dict[int, int]:
        """Return the offsets to commit. Raises CannotMigrate, CoordinatorRefused, UpstreamLost.

        Args:
            base: the Metadata entry of the base. addresses: node id -> address.
        """
        partitions = len(base.partitions)
        async with connection(await coordinator_of(self._client, self._group), self._settings) as opened:
            await self._check_idle(opened)
            committed = await self._committed(opened, old, partitions)
            if not committed:
                raise CannotMigrate(f"group {self._group} has committed nothing on {old.topic}")
            if await self._committed(opened, new, partitions):
                raise CannotMigrate(
                    f"group {self._group} has committed offsets on {new.topic} already; delete them first "
                    f"(kafka-consumer-groups --delete-offsets) if it is to start over"
                )
        return starts(committed, old, new, partitions, await self._begins(base, addresses))

    async def commit(self, new: Sliced, offsets: Mapping[int, int]) -> None:
        """Commit the offsets. Raises CannotMigrate, CoordinatorRefused, UpstreamLost."""
        message = messages.OffsetCommitRequest
        entries = [
            message.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
            )
            for index, offset in sorted(offsets.items())
        ]
        request = message(
            group_id=self._group,
            generation_id_or_member_epoch=NO_MEMBER,
            member_id="",
            topics=[message.OffsetCommitRequestTopic(name=new.topic, partitions=entries)],
        )
        async with connection(await coordinator_of(self._client, self._group), self._settings) as opened:
            response = await opened.send_request(ApiKey.OFFSET_COMMIT, request, version=OFFSET_COMMIT_VERSION)
        for entry in (entry for topic in response.topics for entry in topic.partitions):
            if entry.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                raise CannotMigrate(f"group {self._group} has members: stop them first")
            _check(entry.error_code, f"commit on {new.topic}-{entry.partition_index}")

    async def _check_idle(self, opened: ClusterConnection) -> None:
        """Raise CannotMigrate if the group has members. Each describe API reports groups of the other kind (KIP-848) as
        Dead.
        """
        classic = messages.DescribeGroupsRequest(groups=[self._group])
        response = await opened.send_request(ApiKey.DESCRIBE_GROUPS, classic, version=DESCRIBE_GROUPS_VERSION)
        _check(response.groups[0].error_code, f"describe group {self._group}")
        states = [response.groups[0].group_state]
        if ApiKey.CONSUMER_GROUP_DESCRIBE in opened.versions.ranges:
            modern = messages.ConsumerGroupDescribeRequest(group_ids=[self._group])
            described = (await opened.send_request(ApiKey.CONSUMER_GROUP_DESCRIBE, modern)).groups[0]
            states += [described.group_state] if described.error_code == ErrorCode.NONE else []
        for state in states:
            if state not in IDLE:
                raise CannotMigrate(f"group {self._group} has members ({state}): stop them first")

    async def _committed(self, opened: ClusterConnection, sliced: Sliced, partitions: int) -> dict[int, int]:
        message = messages.OffsetFetchRequest
        indexes = list(range(partitions * sliced.slots))
        group = message.OffsetFetchRequestGroup(
            group_id=self._group,
            topics=[message.OffsetFetchRequestTopics(name=sliced.topic, partition_indexes=indexes)],
        )
        request = message(groups=[group], require_stable=True)
        response = (await opened.send_request(ApiKey.OFFSET_FETCH, request, version=OFFSET_FETCH_VERSION)).groups[0]
        _check(response.error_code, f"read the offsets of group {self._group}")
        offsets = {}
        for entry in (entry for topic in response.topics for entry in topic.partitions):
            _check(entry.error_code, f"read the offsets of group {self._group}")
            if entry.committed_offset >= 0:
                offsets[entry.partition_index] = entry.committed_offset
        return offsets

    async def _begins(self, base: TopicEntry, addresses: Mapping[int, Address]) -> dict[int, int]:
        by_leader: dict[int, list[int]] = {}
        for partition in base.partitions:
            by_leader.setdefault(partition.leader_id, []).append(partition.partition_index)
        message, offsets = messages.ListOffsetsRequest, dict[int, int]()
        for node_id, indexes in by_leader.items():
            if node_id not in addresses:
                raise CannotMigrate(f"partition {indexes[0]} of {base.name} has no leader")
            partitions = [message.ListOffsetsPartition(partition_index=index, timestamp=EARLIEST) for index in indexes]
            request = message(
                replica_id=-1, topics=[message.ListOffsetsTopic(name=base.name or "", partitions=partitions)]
            )
            async with connection(addresses[node_id], self._settings) as opened:
                response = await opened.send_request(ApiKey.LIST_OFFSETS, request, version=LIST_OFFSETS_VERSION)
            for entry in response.topics[0].partitions:
                _check(entry.error_code, f"find where {base.name}-{entry.partition_index} begins")
                offsets[entry.partition_index] = entry.offset
        return offsets


def _check(code: int, what: str) -> None:
    if code != ErrorCode.NONE:
        raise CannotMigrate(f"cannot {what}: {error_name(code)}")
