"""Deletion of the ranges of groups that no longer exist, in memory and in the topic (commits/README.md rule 22).

A group is gone if two consecutive rounds find no committed offset, and neither does a third check under the lock of the
whole group. Nothing is deleted if the coordinator does not respond, if the proxy's identity may not see the group or a
topic, or if a transaction may be open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from kafka_share_proxy.brokers.queries import CoordinatorOf, about_coordinators
from kafka_share_proxy.commits.held_state import CommittingGroup
from kafka_share_proxy.commits.locked_partitions import with_whole_group
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.commits.storing import end_group, outcome_of_appends
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.loop.recurring import RoundRobin, check_every
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.messages import Message, RequestMessage
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost
from kafka_share_proxy.wire.values import ZERO_UUID, TopicPartition

R = TypeVar("R", bound=Message)

CHECK_EVERY_S = 600.0
GROUPS_PER_ROUND = 100
"""Number of groups examined in one round, in addition to those that had no committed offset in the last round."""
PARTITIONS_PER_REQUEST = 1_000
"""Larger groups need several requests."""

NOTHING_COMMITTED = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID})
"""Error codes that mean "nothing committed". Topic ids are never reused."""


class ExpiredGroups:
    """Periodic search for groups without committed offsets."""

    def __init__(self, services: CommitServices) -> None:
        self._services = services
        self._rotation = RoundRobin("")
        """`suspected`: groups without a committed offset."""

    def start(self) -> None:
        check_every(self._services.timers, CHECK_EVERY_S, self.check_groups)

    async def check_groups(self) -> None:
        """Run one round: check the next groups, and delete those that two rounds in a row found without offsets."""
        suspected: set[str] = set()
        try:
            by_coordinator = await self._coordinators(self._next_groups())
            for node_id, names in by_coordinator.items():
                suspected |= await self._without_offsets(node_id, names)
            for name in sorted(suspected & self._rotation.suspected):
                await self._delete_if_expired(name, by_coordinator)
        except ProxyError as error:
            self._services.base.notes("ranges-not-checked", reason=str(error))
        self._rotation.suspected = frozenset(suspected)

    def _next_groups(self) -> list[str]:
        return self._rotation.next(filter(self._is_owned, self._services.held.groups), GROUPS_PER_ROUND)

    def _is_owned(self, name: str) -> bool:
        return self._services.gate.lets_in((state_partition(name),))

    async def _coordinators(self, names: Sequence[str]) -> dict[int, list[str]]:
        """Raises ProxyError."""
        brokers = sorted(self._services.base.topology.brokers)
        if not brokers or not names:
            return {}
        response = await self._query(
            brokers[0], ApiKey.FIND_COORDINATOR, about_coordinators(CoordinatorOf.GROUP, names)
        )
        by_node: dict[int, list[str]] = {}
        for entry in response.coordinators:
            if entry.error_code == ErrorCode.NONE:
                by_node.setdefault(entry.node_id, []).append(entry.key)
        return by_node

    async def _without_offsets(self, node_id: int, names: Sequence[str]) -> set[str]:
        """Return the groups for which the coordinator has no committed offset in any partition with ranges."""
        groups = [self._services.held.groups[name] for name in names if name in self._services.held.groups]
        unchecked = {group.group_id: _with_ranges(group) for group in groups if not _has_open_transaction(group)}
        without_offsets: set[str] = set()
        while unchecked:  # as often as the largest group needs
            groups_without = await self._without_offsets_in(
                node_id, {name: partitions[:PARTITIONS_PER_REQUEST] for name, partitions in unchecked.items()}
            )
            without_offsets |= {name for name in groups_without if len(unchecked[name]) <= PARTITIONS_PER_REQUEST}
            unchecked = {name: unchecked[name][PARTITIONS_PER_REQUEST:] for name in groups_without - without_offsets}
        return without_offsets

    async def _without_offsets_in(self, node_id: int, queried: Mapping[str, Sequence[TopicPartition]]) -> set[str]:
        """Return the groups without a committed offset in these partitions, by one request."""
        message = messages.OffsetFetchRequest
        requested_groups = [
            message.OffsetFetchRequestGroup(
                group_id=name, topics=self._topics(name, partitions) if partitions else None
            )
            for name, partitions in queried.items()
        ]
        response = await self._query(
            node_id, ApiKey.OFFSET_FETCH, message(groups=requested_groups, require_stable=True)
        )
        return {
            group.group_id
            for group in response.groups
            if group.group_id in queried and _has_no_offsets(group, queried[group.group_id])
        }

    def _topics(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> list[messages.OffsetFetchRequest.OffsetFetchRequestTopics]:
        """Return topics. A missing topic id is filled in from the cluster's metadata."""
        message, by_topic = messages.OffsetFetchRequest, dict[tuple[str, bytes], list[int]]()
        for partition in partitions:
            topic = self._services.base.topology.topic(partition.topic)
            group = self._services.held.groups.get(group_id)  # None if it ended during an earlier request
            state = None if group is None else group.partitions.get(partition)
            topic_id = ZERO_UUID if state is None else state.topic_id
            if topic_id == ZERO_UUID and topic is not None:
                topic_id = topic.topic_id
            by_topic.setdefault((partition.topic, topic_id), []).append(partition.partition)
        return [
            message.OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=indexes)
            for (name, topic_id), indexes in by_topic.items()
        ]

    async def _delete_if_expired(self, name: str, by_coordinator: Mapping[int, Sequence[str]]) -> None:
        """Check again under the lock of the whole group, then delete. Raises ProxyError."""
        node_id = next(candidate for candidate, names in by_coordinator.items() if name in names)

        async def delete_if_still_expired() -> None:
            services = self._services
            group = services.held.groups.get(name)
            if group is None or not self._is_owned(name) or name not in await self._without_offsets(node_id, [name]):
                return
            ranges_count = sum(len(state.ranges) for state in group.partitions.values())
            end_group(services, group)
            if await outcome_of_appends(services, group) == ErrorCode.NONE:
                services.held.drop(name)
                services.base.notes("ranges-of-group-ended", group=name, ranges=ranges_count)

        await with_whole_group(self._services, name, delete_if_still_expired)

    async def _query(self, node_id: int, key: int, request: RequestMessage[R]) -> R:
        own = self._services.base.own
        if own is None:
            raise UpstreamLost("the proxy sends no requests of its own")
        return await own.send_request(node_id, key, request)


def _with_ranges(group: CommittingGroup) -> list[TopicPartition]:
    return [partition for partition, state in group.partitions.items() if state.ranges]


def _has_no_offsets(
    group: messages.OffsetFetchResponse.OffsetFetchResponseGroup, partitions: Sequence[TopicPartition]
) -> bool:
    entries = [entry for topic in group.topics or () for entry in topic.partitions or ()]
    return (
        group.error_code == ErrorCode.NONE
        and len(entries) >= len(partitions)
        and all(entry.committed_offset < 0 and entry.error_code in NOTHING_COMMITTED for entry in entries)
    )


def _has_open_transaction(group: CommittingGroup) -> bool:
    return any(state.transaction is not None for state in group.partitions.values())
