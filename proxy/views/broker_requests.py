"""What is asked of brokers about views: Metadata of views and their bases, making, growing and deleting view topics.

All of them go to whichever broker a connection leads to; brokers without ZooKeeper pass on what is for the controller,
as the principal that asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from proxy.brokers.interfaces import Connection
from proxy.brokers.questions import TopicEntry, about_topics
from proxy.forwarding.ask_and_reply import ask, told
from proxy.views.model.base_comparison import Seen
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import RemoteProtocolError

METADATA_VERSION, CREATE_TOPICS_VERSION, DELETE_TOPICS_VERSION, CREATE_PARTITIONS_VERSION = 12, 7, 6, 3
"""Brokers from 3.9 on have all of them: Metadata and DeleteTopics by id (KIP-516)."""

DEFAULT_REPLICATION = -1
"""As the brokers are set (KIP-464)."""

CONFIGS = {"max.message.bytes": "0", "cleanup.policy": "delete"}
"""Of a view topic: nothing can be written into it, past the proxies either; what it shows is in the base."""


async def ask_topics(
    connection: Connection, names: Iterable[str], *, operations: bool = False
) -> dict[str, TopicEntry]:
    """Metadata entries by name, also of topics that do not exist; nothing is created. Raises UpstreamLost."""
    question = about_topics(dict.fromkeys(names), operations=operations)
    answer = told(
        messages.MetadataResponse, METADATA_VERSION, await ask(connection, ApiKey.METADATA, METADATA_VERSION, question)
    )
    return {topic.name: topic for topic in answer.topics or () if topic.name is not None}


async def ask_ids(connection: Connection, topic_ids: Iterable[bytes]) -> list[TopicEntry]:
    """Metadata entries of these topics. Raises UpstreamLost."""
    question = about_topics(ids=dict.fromkeys(topic_ids))
    answer = told(
        messages.MetadataResponse, METADATA_VERSION, await ask(connection, ApiKey.METADATA, METADATA_VERSION, question)
    )
    return list(answer.topics or ())


async def create(
    connection: Connection, partitions: Mapping[str, int], replication: int, timeout_s: float
) -> dict[str, tuple[int, str]]:
    """Make view topics; name -> error code and what the broker says. Raises UpstreamLost."""
    request = messages.CreateTopicsRequest
    topics = [
        request.CreatableTopic(
            name=name,
            num_partitions=count,
            replication_factor=replication,
            assignments=[],
            configs=[request.CreatableTopicConfig(name=key, value=value) for key, value in CONFIGS.items()],
        )
        for name, count in partitions.items()
    ]
    question = request(topics=topics, timeout_ms=round(timeout_s * 1000))
    answer = told(
        messages.CreateTopicsResponse,
        CREATE_TOPICS_VERSION,
        await ask(connection, ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, question),
    )
    return {topic.name: (topic.error_code, topic.error_message or "") for topic in answer.topics or ()}


async def grow(connection: Connection, name: str, partitions: int, timeout_s: float) -> tuple[int, str]:
    """Give a view topic so many partitions in all; error code and what the broker says. Raises UpstreamLost."""
    request = messages.CreatePartitionsRequest
    topic = request.CreatePartitionsTopic(name=name, count=partitions, assignments=None)
    question = request(topics=[topic], timeout_ms=round(timeout_s * 1000))
    version = CREATE_PARTITIONS_VERSION
    answer = told(
        messages.CreatePartitionsResponse, version, await ask(connection, ApiKey.CREATE_PARTITIONS, version, question)
    )
    return _only(answer.results, "CreatePartitions")


async def delete(connection: Connection, topic_id: bytes, timeout_s: float) -> tuple[int, str]:
    """Delete exactly this topic, not a later one of its name; as `grow`."""
    request = messages.DeleteTopicsRequest
    topic = request.DeleteTopicState(name=None, topic_id=topic_id)
    question = request(topics=[topic], timeout_ms=round(timeout_s * 1000))
    version = DELETE_TOPICS_VERSION
    answer = told(
        messages.DeleteTopicsResponse, version, await ask(connection, ApiKey.DELETE_TOPICS, version, question)
    )
    return _only(answer.responses, "DeleteTopics")


def seen(entry: TopicEntry | None) -> Seen:
    """A Metadata entry; None counts as "no such topic"."""
    if entry is None:
        return Seen(3)
    return Seen(entry.error_code, bytes(entry.topic_id), len(entry.partitions or ()))


class _Outcome(Protocol):
    error_code: int
    error_message: str | None


def _only(entries: Sequence[_Outcome], api: str) -> tuple[int, str]:
    if len(entries) != 1:
        raise RemoteProtocolError(f"the answer to {api} names {len(entries)} topics, one was asked about")
    return entries[0].error_code, entries[0].error_message or ""
