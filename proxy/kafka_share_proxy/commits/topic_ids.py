"""Topic ids, verified at the broker of the coordinator before a commit inherits anything (commits/README.md rule 16).

A commit *inherits* when more is committed than the client sent. The Metadata request goes over the connection of the
commit, after the commit was received: a client that read the recreated topic sent its commit after the recreation.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kafka_share_proxy.brokers.topic_leaders import on_many_topics, request_many_topics, trouble_with
from kafka_share_proxy.commits.requested_commits import RequestedCommit
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID


async def current_topic_ids(call: Call[Message], services: CommitServices, names: Collection[str]) -> dict[str, bytes]:
    """Return the ids of the topics that the broker shows. Raises UpstreamLost."""
    responses = request_many_topics(call.connection, names)
    topics = await on_many_topics(call.connection, services.base, responses, call.work)
    return {each.name: bytes(each.topic_id) for each in topics if each.name and bytes(each.topic_id) != ZERO_UUID}


async def verify_topic_ids(
    call: Call[Message],
    services: CommitServices,
    commits: Sequence[RequestedCommit],
    inheriting: Collection[RequestedCommit],
) -> bool:
    """True if nothing has changed. Raises UpstreamLost.

    Otherwise the commits have the current id now, or are refused.
    """
    names = {
        requested.topic_partition.topic
        for requested in inheriting
        if requested.topic_partition is not None and not has_topic_id(requested)
    }
    if not names:
        return True
    ids = await current_topic_ids(call, services, names)
    is_same = True
    for requested in commits:
        if requested.topic_partition is None or requested.topic_partition.topic not in names:
            continue
        topic_id = ids.get(requested.topic_partition.topic)
        if topic_id is None:
            trouble = trouble_with(call.connection, services.base, requested.topic_partition.topic)
            requested.refuse(trouble or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the broker does not show the topic")
        is_same = is_same and topic_id == requested.topic_id
        requested.topic_id = topic_id or requested.topic_id
    return is_same


def has_topic_id(requested: RequestedCommit) -> bool:
    return any(bytes(requested.topic.topic_id))
