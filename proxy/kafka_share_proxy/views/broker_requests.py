"""Requests about views to brokers: Metadata of views and bases; creation, growth and deletion of view topics.

Brokers without ZooKeeper forward requests for the controller, as the principal that sent them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.brokers.queries import TopicEntry, about_topics
from kafka_share_proxy.forwarding.served.upstream_requests import (
    decode_response,
    decode_response_in_slices,
    send_request,
    send_request_in_slices,
)
from kafka_share_proxy.loop.slices import AT_ONCE, Work
from kafka_share_proxy.views.model.base_comparison import TopicState
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError

METADATA_VERSION, CREATE_TOPICS_VERSION, DELETE_TOPICS_VERSION, CREATE_PARTITIONS_VERSION = 12, 7, 6, 3
"""Versions that all brokers from 3.9 on have."""

DEFAULT_REPLICATION = -1
"""The brokers' default (KIP-464)."""

PARTITIONS_PER_REQUEST = 10_000
"""Maximum number of partitions in one CreateTopics request (ReplicationControlManager.MAX_PARTITIONS_PER_BATCH, 4.3).
"""

CONFIGS = {"max.message.bytes": "0", "cleanup.policy": "delete"}
"""Settings of a view topic, with which nothing can be written to it, even without a proxy."""


async def request_topics(
    connection: Connection, names: Iterable[str], *, operations: bool = False, work: Work = AT_ONCE
) -> dict[str, TopicEntry]:
    """Return Metadata entries by name, also of topics that do not exist. Raises UpstreamLost."""
    query = about_topics(operations=operations)
    entry = messages.MetadataRequest.MetadataRequestTopic
    query.topics = await work.map(lambda name: entry(name=name), dict.fromkeys(names))
    topics: dict[str, TopicEntry] = {}
    for topic in await _metadata(connection, query, work):
        if topic.name is not None:
            topics[topic.name] = topic
        await work.step()
    return topics


async def request_ids(connection: Connection, topic_ids: Iterable[bytes], work: Work = AT_ONCE) -> list[TopicEntry]:
    """Return Metadata entries of topic ids. Raises UpstreamLost."""
    query = about_topics()
    entry = messages.MetadataRequest.MetadataRequestTopic
    query.topics = await work.map(lambda id_: entry(topic_id=id_, name=None), dict.fromkeys(topic_ids))
    return list(await _metadata(connection, query, work))


async def _metadata(connection: Connection, query: messages.MetadataRequest, work: Work) -> Sequence[TopicEntry]:
    pending = await send_request_in_slices(work, connection, ApiKey.METADATA, METADATA_VERSION, query)
    response = await decode_response_in_slices(work, messages.MetadataResponse, METADATA_VERSION, await pending)
    return response.topics or ()


async def create(
    connection: Connection,
    by_replication: Mapping[int, Mapping[str, int]],
    timeout_s: float,
    *,
    validate_only: bool = False,
    work: Work = AT_ONCE,
) -> dict[str, tuple[int, str]]:
    """Create view topics. Return error code and the broker's text by name. Raises UpstreamLost.

    `by_replication`: replication factor -> topic -> partitions. What the cluster has too few brokers for is created
    with the brokers' default.
    """
    results: dict[str, tuple[int, str]] = {}
    for replication, topics in by_replication.items():
        results |= await _create(connection, topics, replication, timeout_s, validate_only, work)
        if replication == DEFAULT_REPLICATION:
            continue
        failed: dict[str, int] = {}
        for name, count in topics.items():
            if results.get(name, (0,))[0] == ErrorCode.INVALID_REPLICATION_FACTOR:
                failed[name] = count
            await work.step()
        if failed:
            results |= await _create(connection, failed, DEFAULT_REPLICATION, timeout_s, validate_only, work)
    return results


async def _create(
    connection: Connection,
    partitions: Mapping[str, int],
    replication: int,
    timeout_s: float,
    validate_only: bool,
    work: Work,
) -> dict[str, tuple[int, str]]:
    results: dict[str, tuple[int, str]] = {}
    for names in _in_requests(partitions):
        topics = await work.map(lambda name: _creatable(name, partitions[name], replication), names)
        query = messages.CreateTopicsRequest(
            topics=topics, timeout_ms=round(timeout_s * 1000), validate_only=validate_only
        )
        version = CREATE_TOPICS_VERSION
        pending = await send_request_in_slices(work, connection, ApiKey.CREATE_TOPICS, version, query)
        response = await decode_response_in_slices(work, messages.CreateTopicsResponse, version, await pending)
        for topic in response.topics or ():
            results[topic.name] = topic.error_code, topic.error_message or ""
            await work.step()
    return results


def _creatable(name: str, partitions: int, replication: int) -> messages.CreateTopicsRequest.CreatableTopic:
    request = messages.CreateTopicsRequest
    return request.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        assignments=[],
        configs=[request.CreatableTopicConfig(name=key, value=value) for key, value in CONFIGS.items()],
    )


def _in_requests(partitions: Mapping[str, int]) -> list[list[str]]:
    """Distribute topics over requests. One that is too large for any is sent alone, and the broker refuses it."""
    requests: list[list[str]] = []
    remaining = 0
    for name, count in partitions.items():
        if count > remaining or not requests:
            requests.append([])
            remaining = PARTITIONS_PER_REQUEST
        requests[-1].append(name)
        remaining -= count
    return requests


async def grow(connection: Connection, name: str, partitions: int, timeout_s: float) -> tuple[int, str]:
    """Add partitions to a topic, up to this number. Return error code and the broker's text. Raises UpstreamLost."""
    request = messages.CreatePartitionsRequest
    topic = request.CreatePartitionsTopic(name=name, count=partitions, assignments=None)
    query = request(topics=[topic], timeout_ms=round(timeout_s * 1000))
    version = CREATE_PARTITIONS_VERSION
    response = decode_response(
        messages.CreatePartitionsResponse,
        version,
        await send_request(connection, ApiKey.CREATE_PARTITIONS, version, query),
    )
    return _only(response.results, "CreatePartitions")


async def delete(connection: Connection, topic_id: bytes, timeout_s: float) -> tuple[int, str]:
    """Delete exactly this topic, not a later one of the same name. Returns and raises as `grow`."""
    request = messages.DeleteTopicsRequest
    topic = request.DeleteTopicState(name=None, topic_id=topic_id)
    query = request(topics=[topic], timeout_ms=round(timeout_s * 1000))
    version = DELETE_TOPICS_VERSION
    response = decode_response(
        messages.DeleteTopicsResponse, version, await send_request(connection, ApiKey.DELETE_TOPICS, version, query)
    )
    return _only(response.responses, "DeleteTopics")


def state_of(entry: TopicEntry | None) -> TopicState:
    """Return the state that a Metadata entry shows. None: the topic does not exist."""
    if entry is None:
        return TopicState(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return TopicState(entry.error_code, bytes(entry.topic_id), len(entry.partitions or ()))


class _Outcome(Protocol):
    error_code: int
    error_message: str | None


def _only(entries: Sequence[_Outcome], api: str) -> tuple[int, str]:
    if len(entries) != 1:
        raise RemoteProtocolError(f"the response to {api} names {len(entries)} topics instead of one")
    return entries[0].error_code, entries[0].error_message or ""
