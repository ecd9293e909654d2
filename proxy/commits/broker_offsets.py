"""What the broker says is committed, asked over the client's own connection (commits/README.md rule 14).

OffsetFetch v7: the lowest version that can be told to leave out what an open transaction may change (KIP-447), and one
that names topics. It asks for DESCRIBE on the group and on the topics, which whoever may commit has.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from proxy.brokers.interfaces import Connection
from proxy.forwarding.ask_and_reply import ask, told
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode
from proxy.wire.values import TopicPartition

OFFSET_FETCH_VERSION = 7


class BrokerOffset(NamedTuple):
    """What is committed of one partition."""

    offset: int
    """The committed offset; -1 where none is committed."""
    leader_epoch: int
    metadata: str | None
    error_code: ErrorCode
    """UNSTABLE_OFFSET_COMMIT: a transaction that may change it is open."""


async def ask_committed(
    connection: Connection, group_id: str, places: Collection[TopicPartition]
) -> dict[TopicPartition, BrokerOffset]:
    """What the broker says of each of these partitions. Raises UpstreamLost."""
    by_topic: dict[str, list[int]] = {}
    for place in places:
        by_topic.setdefault(place.topic, []).append(place.partition)
    request = messages.OffsetFetchRequest
    topics = [request.OffsetFetchRequestTopic(name=name, partition_indexes=found) for name, found in by_topic.items()]
    wanted = request(group_id=group_id, topics=topics, require_stable=True)
    answered = await ask(connection, ApiKey.OFFSET_FETCH, OFFSET_FETCH_VERSION, wanted)
    answer = told(messages.OffsetFetchResponse, OFFSET_FETCH_VERSION, answered)
    refused = ErrorCode.of(answer.error_code)
    found = {place: BrokerOffset(-1, -1, None, refused or ErrorCode.UNKNOWN_SERVER_ERROR) for place in places}
    for topic in answer.topics or ():
        for entry in topic.partitions or ():
            code = refused or ErrorCode.of(entry.error_code)
            place = TopicPartition(topic.name, entry.partition_index)
            found[place] = BrokerOffset(entry.committed_offset, entry.committed_leader_epoch, entry.metadata, code)
    return found
