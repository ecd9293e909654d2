"""OffsetCommit requests of one partition."""

from __future__ import annotations

from kafka_share_proxy.wire.definitions import messages


def offset_commit(group: str, topic: str, offset: int, text: str = "") -> messages.OffsetCommitRequest:
    """Build an OffsetCommit of partition 0, without a member."""
    request = messages.OffsetCommitRequest
    entry = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=text)
    return request(group_id=group, topics=[request.OffsetCommitRequestTopic(name=topic, partitions=[entry])])
