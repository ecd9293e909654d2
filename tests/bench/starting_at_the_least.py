"""The least that a first start waits for brokers, without a proxy, for the bench of starts.

All that share groups and individual commits need of a new cluster before they are served: a member joins the first
group of the cluster, the topics of both states are made meanwhile, and then each of their partitions gets a producer
id. What a proxy does in addition (its own start, appends, reading the partitions) is left out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings, ClusterConnection, connection
from kafka_share_proxy.brokers.producer_messages import init_producer_id
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.values import Address

GROUP, STATES, PARTITIONS = "floor", ("floor-shares", "floor-commits"), 50
GROUP_KEY, TRANSACTION_KEY = 0, 1
CONNECTIONS = 4
"""Connections on which the producer ids of one state are requested in parallel."""
PAUSE_S = 0.02
"""Seconds between two attempts, as the proxy waits."""
SESSION_MS = 10_000


async def until_done(attempt: Callable[[], Awaitable[bool]]) -> None:
    """Repeat until the attempt returns True."""
    while not await attempt():  # noqa: ASYNC110  # only the broker knows
        await trio.sleep(PAUSE_S)


async def coordinator(opened: ClusterConnection, kind: int, name: str) -> None:
    """Return once the coordinator is known; its topic is created if it does not exist."""

    async def is_known() -> bool:
        request = messages.FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
        response = await opened.send_request(ApiKey.FIND_COORDINATOR, request)
        return response.coordinators[0].error_code == 0

    await until_done(is_known)


async def join(broker: Address) -> None:
    """Join a group alone, which waits for `group.initial.rebalance.delay.ms`."""
    member_id = ""
    async with connection(broker, ClusterClientSettings()) as opened:
        await coordinator(opened, GROUP_KEY, GROUP)

        async def has_joined() -> bool:
            nonlocal member_id
            request = messages.JoinGroupRequest
            response = await opened.send_request(
                ApiKey.JOIN_GROUP,
                request(
                    group_id=GROUP,
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=SESSION_MS,
                    member_id=member_id,
                    protocol_type="floor",
                    protocols=[request.JoinGroupRequestProtocol(name="floor", metadata=b"")],
                ),
            )
            member_id = response.member_id
            return response.error_code == 0

        await until_done(has_joined)


async def create(broker: Address, topic: str) -> None:
    """Create the topic of a state and wait for its leaders."""
    async with connection(broker, ClusterClientSettings()) as opened:
        request = messages.CreateTopicsRequest
        creatable_topic = request.CreatableTopic(name=topic, num_partitions=PARTITIONS, replication_factor=1)
        await opened.send_request(ApiKey.CREATE_TOPICS, request(topics=[creatable_topic], timeout_ms=SESSION_MS))

        async def is_led() -> bool:
            query = messages.MetadataRequest(topics=[messages.MetadataRequest.MetadataRequestTopic(name=topic)])
            (topic_metadata,) = (await opened.send_request(ApiKey.METADATA, query)).topics
            return len(topic_metadata.partitions or ()) == PARTITIONS and all(
                each.leader_id >= 0 for each in topic_metadata.partitions
            )

        await until_done(is_led)
        await coordinator(opened, TRANSACTION_KEY, f"{topic}-0")


async def identify(broker: Address, topic: str, first: int) -> None:
    """Request the producer ids of every fourth partition."""
    async with connection(broker, ClusterClientSettings()) as opened:
        for partition in range(first, PARTITIONS, CONNECTIONS):
            request: Any = init_producer_id(f"{topic}-{partition}", -1, -1)

            async def is_identified(request: Any = request) -> bool:
                return bool((await opened.send_request(ApiKey.INIT_PRODUCER_ID, request)).error_code == 0)

            await until_done(is_identified)


async def at_the_least(broker: Address) -> None:
    """Everything, as parallel as the proxy has it."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(join, broker)
        for topic in STATES:
            nursery.start_soon(create, broker, topic)
    async with trio.open_nursery() as nursery:
        for topic in STATES:
            for first in range(CONNECTIONS):
                nursery.start_soon(identify, broker, topic, first)
