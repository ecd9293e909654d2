"""Migration of a group from one view to another: the start offsets of the new view's partitions (`views migrate`).

Rule: views/README.md 8. A base partition without any committed offset is omitted, because the group's reset policy
applies there before and after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_share_proxy.brokers import topic_log
from kafka_share_proxy.brokers.cluster_connection import ClusterConnection
from kafka_share_proxy.brokers.open_nodes import OpenNodes
from kafka_share_proxy.brokers.queries import CoordinatorOf, TopicEntry
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, error_name
from kafka_share_proxy.wire.values import Address, TopicPartition

OFFSET_COMMIT_VERSION, OFFSET_FETCH_VERSION, DESCRIBE_GROUPS_VERSION = 8, 8, 5
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

    def __init__(self, nodes: OpenNodes, group: str) -> None:
        self._nodes, self._group = nodes, group

    async def plan(self, old: Sliced, new: Sliced, base: TopicEntry) -> dict[int, int]:
        """Return the offsets to commit. Raises CannotMigrate, CoordinatorRefused, UpstreamLost.

        Args:
            base: the Metadata entry of the base.
        """
        partitions = len(base.partitions)
        async with self._nodes.connection(await self._coordinator()) as opened:
            await self._check_idle(opened)
            committed = await self._committed(opened, old, partitions)
            if not committed:
                raise CannotMigrate(f"group {self._group} has committed nothing on {old.topic}")
            if await self._committed(opened, new, partitions):
                raise CannotMigrate(
                    f"group {self._group} has committed offsets on {new.topic} already; delete them first "
                    f"(kafka-consumer-groups --delete-offsets) if it is to start over"
                )
        return starts(committed, old, new, partitions, await self._begins(base))

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
        coordinator = await self._coordinator()
        response = await self._nodes.send_request(coordinator, ApiKey.OFFSET_COMMIT, request, OFFSET_COMMIT_VERSION)
        for entry in (entry for topic in response.topics for entry in topic.partitions):
            if entry.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                raise CannotMigrate(f"group {self._group} has members: stop them first")
            _check(entry.error_code, f"commit on {new.topic}-{entry.partition_index}")

    async def _coordinator(self) -> Address:
        return await self._nodes.coordinator(CoordinatorOf.GROUP, self._group)

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

    async def _begins(self, base: TopicEntry) -> dict[int, int]:
        """Return the first offset of the log of each base partition."""
        name, by_leader, offsets = base.name or "", dict[Address, list[int]](), dict[int, int]()
        for partition in range(len(base.partitions)):
            by_leader.setdefault(await self._nodes.leader(TopicPartition(name, partition)), []).append(partition)
        for leader, partitions in by_leader.items():
            async with self._nodes.connection(leader) as opened:
                entries = await topic_log.request_offsets(opened, name, partitions, topic_log.EARLIEST)
            for entry in entries:
                _check(entry.error_code, f"find where {name}-{entry.partition_index} begins")
                offsets[entry.partition_index] = entry.offset
        return offsets


def _check(code: int, action: str) -> None:
    if code != ErrorCode.NONE:
        raise CannotMigrate(f"cannot {action}: {error_name(code)}")
