"""Request messages that several rooms send to brokers: topics, settings, coordinators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TypeAlias

from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

TopicEntry: TypeAlias = "messages.MetadataResponse.MetadataResponseTopic"

COORDINATOR_ELSEWHERE = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
"""Codes of a broker that is not the coordinator, or not yet."""


class CoordinatorOf(IntEnum):
    """Key type of FindCoordinator (FindCoordinatorRequest.CoordinatorType)."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class Resource(IntEnum):
    """Resource type of DescribeConfigs (ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


def about_topics(
    names: Iterable[str] = (), ids: Iterable[bytes] = (), *, operations: bool = False
) -> messages.MetadataRequest:
    """Return a MetadataRequest. Without any topic: about the brokers alone.

    `operations`: include the rights of the requesting principal. Ids need v12, which every supported broker has.
    """
    return messages.MetadataRequest(
        topics=[
            *(messages.MetadataRequest.MetadataRequestTopic(name=name) for name in names),
            *(messages.MetadataRequest.MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids),
        ],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=operations,
    )


def about_all_topics() -> messages.MetadataRequest:
    return messages.MetadataRequest(topics=None, allow_auto_topic_creation=False)


def about_coordinators(kind: CoordinatorOf, names: Sequence[str]) -> messages.FindCoordinatorRequest:
    """Return a FindCoordinatorRequest (v4 and later)."""
    return messages.FindCoordinatorRequest(key_type=kind, coordinator_keys=list(names))


def about_settings(kind: Resource, name: str, settings: Sequence[str]) -> messages.DescribeConfigsRequest:
    message = messages.DescribeConfigsRequest
    resource = message.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(settings)
    )
    return message(resources=[resource])
