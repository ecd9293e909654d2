"""DescribeShareGroupOffsets v0-v1 (KIP-932; v1: lag, KIP-1226), served here.

- Topics null: all share partitions of the group that the client may see, and those of subscribed topics that have not
  been fetched from yet; an unknown group has none. Topics empty: nothing.
- Named topics: the group need not exist. DESCRIBE denied: 29 per partition; an unknown topic: no id, start offset -1; a
  share partition without state: start offset -1, leader epoch 0, lag -1. The last two are not errors. The same, but
  with the leader's epoch, before an offset is shown (sharegroups/README.md rule 52).
- If the leader does not return the end of the log, the partition carries its error (v1).
- A broker returns the start offset of its last write, which may be older; here it is the present one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kafka_share_proxy.brokers.cluster_metadata import Topic
from kafka_share_proxy.brokers.rights import Right, on_describe_groups, request_describe_groups, rights_of
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs
from kafka_share_proxy.forwarding.dispatch.split_requests import Splits
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import replied
from kafka_share_proxy.sharegroups.apis.offset_requests import load_topics, log_ends, shares_of, topic_of
from kafka_share_proxy.sharegroups.fetch.start_offsets import Offsets
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, RequestRefused
from kafka_share_proxy.wire.values import ZERO_UUID, TopicIdPartition

_Group: TypeAlias = "messages.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup"
_Described: TypeAlias = "messages.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup"
_Partition: TypeAlias = "messages.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition"

KEY = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
VERSIONS = (0, 1)
LAG_SINCE = 1

NOT_KNOWN = -1


@dataclass(slots=True)
class _DescribedTopic:
    group_id: str
    name: str
    topic: Topic | ErrorCode
    partitions: Sequence[int]


async def handle(call: Call[messages.DescribeShareGroupOffsetsRequest], services: ShareServices) -> bytes:
    requested_groups = list(call.message.groups or ())
    refusals = await _query_refusals(call, services, requested_groups)
    allowed = [group for group in requested_groups if refusals[group.group_id] == ErrorCode.NONE]
    topics_of_group = await _topics_of_groups(call, services, allowed)
    ends = await _ends(call, services, [each for topics in topics_of_group.values() for each in topics])
    message = messages.DescribeShareGroupOffsetsResponse
    groups = []
    for group in requested_groups:
        code = refusals[group.group_id]
        if code != ErrorCode.NONE:
            groups.append(
                message.DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, topics=[], error_code=code)
            )
            continue
        topics = []
        for each in topics_of_group[id(group)]:
            topics.append(await _topic(call, services, each, ends))
            await call.work.step()
        groups.append(message.DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, topics=topics))
    return await replied(call, message(groups=groups))


async def _query_refusals(
    call: Call[messages.DescribeShareGroupOffsetsRequest], services: ShareServices, requested_groups: Sequence[_Group]
) -> Mapping[str, ErrorCode]:
    """Return the DESCRIBE error of each group, or NONE. Look up unknown topics of the groups in the same round trip."""
    connection, now, cache_s = call.connection, services.timers.now(), services.options.rights_cache_s
    rights = rights_of(connection)
    group_ids = list(dict.fromkeys(group.group_id for group in requested_groups))
    codes = {group_id: rights.group_code(Right.DESCRIBE_GROUP, group_id, now, cache_s) for group_id in group_ids}
    unknown = [group_id for group_id, code in codes.items() if code is None]
    responses = request_describe_groups(connection, unknown)
    names, ids = set[str](), set[bytes]()
    for group in requested_groups:
        if group.topics is not None:
            names.update(topic.topic_name for topic in group.topics)
            await call.work.step()
            continue
        share_group = services.coordinator.group(group.group_id)
        names.update(() if share_group is None else share_group.subscribed_topics())
        for topic_id in {key.topic_id for key in shares_of(services, group.group_id)}:
            topic = services.topology.topic_by_id(topic_id)
            if topic is None:
                ids.add(topic_id)
            else:
                names.add(topic.name)
        await call.work.step()
    await load_topics(call, services, sorted(names), Right.DESCRIBE_TOPIC, sorted(ids))
    for response in responses:
        codes |= on_describe_groups(connection, await response, now)
        await call.work.pause()
    return {group_id: ErrorCode.UNKNOWN_SERVER_ERROR if code is None else code for group_id, code in codes.items()}


async def _topics_of_groups(
    call: Call[messages.DescribeShareGroupOffsetsRequest], services: ShareServices, groups: Sequence[_Group]
) -> dict[int, list[_DescribedTopic]]:
    """Return the topics to describe, by `id()` of the group's entry: one group may be named several times.

    Raises:
        RequestRefused: the response would have more elements than a request may.
    """
    topics_of_group, remaining = dict[int, list[_DescribedTopic]](), services.limits.served_request_elements
    for group in groups:
        topics_of_group[id(group)] = topics = await _topics_of(call, services, group)
        remaining -= sum(len(each.partitions) for each in topics)
        if remaining < 0:
            text = "DescribeShareGroupOffsets about more share partitions than limits.served_request_elements"
            raise RequestRefused(f"{text} ({services.limits.served_request_elements})")
        await call.work.pause()
    return topics_of_group


async def _topics_of(
    call: Call[messages.DescribeShareGroupOffsetsRequest], services: ShareServices, group: _Group
) -> list[_DescribedTopic]:
    """Return the topics to describe in the broker's order: existing ones, unknown ones, those not allowed."""
    if group.topics is None:
        return _all(call, services, group.group_id)
    topics = []
    for requested in group.topics:
        topic = topic_of(call.connection, services, requested.topic_name, Right.DESCRIBE_TOPIC)
        topics.append(_DescribedTopic(group.group_id, requested.topic_name, topic, requested.partitions or ()))
        await call.work.step()
    return sorted(topics, key=_rank)


def _rank(described: _DescribedTopic) -> int:
    if isinstance(described.topic, Topic):
        return 0
    return 1 if described.topic == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else 2


def _all(
    call: Call[messages.DescribeShareGroupOffsetsRequest], services: ShareServices, group_id: str
) -> list[_DescribedTopic]:
    """Return all share partitions of the group, of topics that exist and that the client may describe."""
    partitions_by_topic: dict[str, set[int]] = {}
    for key in shares_of(services, group_id):
        topic = services.topology.topic_by_id(key.topic_id)
        if topic is not None:
            partitions_by_topic.setdefault(topic.name, set()).add(key.partition)
    group = services.coordinator.group(group_id)
    for name in () if group is None else group.subscribed_topics():
        topic = services.topology.topic(name)
        if topic is not None:
            partitions_by_topic.setdefault(name, set()).update(range(topic.partitions))
    topics = []
    for name, partitions in sorted(partitions_by_topic.items()):
        topic_or_code = topic_of(call.connection, services, name, Right.DESCRIBE_TOPIC)
        if isinstance(topic_or_code, Topic):
            topics.append(_DescribedTopic(group_id, name, topic_or_code, sorted(partitions)))
    return topics


async def _ends(
    call: Call[messages.DescribeShareGroupOffsetsRequest], services: ShareServices, topics: Sequence[_DescribedTopic]
) -> Offsets:
    """Return the log ends of the share partitions with state. Empty for a version without lag."""
    if call.version < LAG_SINCE:
        return {}
    partitions = dict[TopicIdPartition, tuple[Topic, int]]()
    for each in topics:
        if not isinstance(each.topic, Topic):
            continue
        for partition in each.partitions:
            key = ShareKey(each.group_id, each.topic.topic_id, partition)
            share = services.coordinator.share(key) if 0 <= partition < each.topic.partitions else None
            if share is not None and share.partition.reports_offsets:
                partitions[TopicIdPartition(key.topic_id, partition)] = (each.topic, partition)
            await call.work.step()
    return await log_ends(call.connection, services, list(partitions.values())) if partitions else {}


async def _topic(
    call: Call[messages.DescribeShareGroupOffsetsRequest],
    services: ShareServices,
    described: _DescribedTopic,
    ends: Offsets,
) -> messages.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic:
    code = ErrorCode.NONE
    topic_id, entries = ZERO_UUID, list[_Partition]()
    if isinstance(described.topic, Topic):
        topic_id = described.topic.topic_id
        for partition in described.partitions:
            if not 0 <= partition < described.topic.partitions:
                entries.append(_nothing(partition, code))
                continue
            key = ShareKey(described.group_id, topic_id, partition)
            entries.append(_partition(services, key, ends.get(TopicIdPartition(topic_id, partition))))
            await call.work.step()
    else:
        if described.topic != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            code = described.topic
        entries = await call.work.map(lambda partition: _nothing(partition, code), described.partitions)
    return messages.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic(
        topic_name=described.name, topic_id=topic_id, partitions=entries
    )


def _nothing(partition: int, code: ErrorCode) -> _Partition:
    return messages.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition(
        partition_index=partition, start_offset=NOT_KNOWN, lag=NOT_KNOWN, error_code=code
    )


def _partition(services: ShareServices, key: ShareKey, end: tuple[ErrorCode, int] | None) -> _Partition:
    share = services.coordinator.share(key)
    if share is None:
        return _nothing(key.partition, ErrorCode.NONE)
    snapshot = share.partition.snapshot()
    leader = services.topology.leader(key.topic_id, key.partition)
    code, lag = ErrorCode.NONE, NOT_KNOWN
    is_reported = share.partition.reports_offsets
    if is_reported and end is not None:
        code, offset = end
        if code == ErrorCode.NONE:
            # If the log was truncated, or the snapshot is newer than this log end, there is nothing left to deliver.
            lag = max(offset - snapshot.start_offset - snapshot.delivery_complete_count, 0)
    return messages.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition(
        partition_index=key.partition,
        start_offset=snapshot.start_offset if is_reported else NOT_KNOWN,
        leader_epoch=0 if leader is None else max(leader.epoch, 0),
        lag=lag,
        error_code=code,
        error_message=None if code == ErrorCode.NONE else "The end of the log is not known.",
    )


async def _respond_unavailable(
    call: Call[messages.DescribeShareGroupOffsetsRequest], code: ErrorCode, reason: str
) -> messages.DescribeShareGroupOffsetsResponse:
    message = messages.DescribeShareGroupOffsetsResponse

    def entry(group: _Group) -> _Described:
        return message.DescribeShareGroupOffsetsResponseGroup(
            group_id=group.group_id, topics=[], error_code=code, error_message=reason or None
        )

    return message(groups=await call.work.map(entry, call.message.groups))


def _group_id(entry: _Group | _Described) -> str:
    return str(entry.group_id)


API = DeclaredApi(
    key=KEY,
    handle=handle,
    versions=VERSIONS,
    needs=Needs.OWNER,
    respond_unavailable=_respond_unavailable,
    splits=Splits("groups", _group_id, "groups", _group_id, _group_id),
    groups_max=10_000,
)
