"""Entries of ShareGroupDescribe responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kafka_share_proxy.sharegroups.model.group import GroupDescription, MemberDescription
from kafka_share_proxy.wire.definitions import messages

Described: TypeAlias = "messages.ShareGroupDescribeResponse.DescribedGroup"
TopicName = Callable[[bytes], str]
"""Returns the name of a topic id, empty if it is unknown."""


def described_group(described: GroupDescription, operations: int, topic_name: TopicName) -> Described:
    """Return the entry of a group. `operations`: authorized operations of the client."""
    return messages.ShareGroupDescribeResponse.DescribedGroup(
        group_id=described.group_id,
        group_state=described.state,
        group_epoch=described.epoch,
        assignment_epoch=described.assignment_epoch,
        assignor_name=described.assignor,
        members=[_member(member, topic_name) for member in described.members],
        authorized_operations=operations,
    )


def _member(member: MemberDescription, topic_name: TopicName) -> messages.ShareGroupDescribeResponse.Member:
    message = messages.ShareGroupDescribeResponse
    topics = [
        message.TopicPartitions(topic_id=topic_id, topic_name=topic_name(topic_id), partitions=list(partitions))
        for topic_id, partitions in sorted(member.assignment.items())
    ]
    return message.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        assignment=message.Assignment(topic_partitions=topics),
    )
