"""The APIs that the cluster serves, one file for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_share_proxy.conformance.target.apis import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k18_api_versions,
    k19_create_topics,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
    k76_share_group_heartbeat,
    k77_share_group_describe,
    k78_share_fetch,
    k79_share_acknowledge,
)
from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.interfaces import TargetApi, TargetCall
from kafka_share_proxy.wire.definitions.messages import Message


def _timely(api: TargetApi) -> TargetApi:
    """Return the API with a handler that calls due timers first: an expired lock is expired for the next request."""

    async def handle(call: TargetCall[Any]) -> Message | None:
        call.cluster.timers.run_due()
        return await api.handle(call)

    return TargetApi(api.key, api.versions, handle)


APIS: tuple[TargetApi, ...] = tuple(
    _timely(module.API)
    for module in (
        k00_produce,
        k01_fetch,
        k02_list_offsets,
        k03_metadata,
        k08_offset_commit,
        k09_offset_fetch,
        k10_find_coordinator,
        k11_join_group,
        k12_heartbeat,
        k13_leave_group,
        k14_sync_group,
        k18_api_versions,
        k19_create_topics,
        k68_consumer_group_heartbeat,
        k69_consumer_group_describe,
        k76_share_group_heartbeat,
        k77_share_group_describe,
        k78_share_fetch,
        k79_share_acknowledge,
    )
)


def offer(cluster: TargetCluster, others: Mapping[int, tuple[int, int]]) -> None:
    """Offer all APIs, and `others` that the server handles itself (lowest and highest version by key)."""
    cluster.offered = dict(sorted({**{int(api.key): api.versions for api in APIS}, **others}.items()))
