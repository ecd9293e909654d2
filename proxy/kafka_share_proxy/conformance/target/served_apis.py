"""The APIs that the cluster serves, with their lowest and highest version; `apis/` has a file for each.

How it works: the file of an API is imported at its first request. It builds message classes, and loads what only this
API needs, as the share groups: all of them would take four times as long as the rest of the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kafka_share_proxy.conformance.target import apis
from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.wire.definitions.api_key import ApiKey

if TYPE_CHECKING:
    from kafka_share_proxy.conformance.target.interfaces import Handler, TargetCall
    from kafka_share_proxy.wire.definitions.message_classes import Message

SASL_VERSIONS: Mapping[int, tuple[int, int]] = {ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 2)}
"""Offered versions of the APIs that connections serve themselves."""


@dataclass(frozen=True)
class TargetApi:
    """One API that the cluster serves."""

    key: ApiKey
    versions: tuple[int, int]
    """Lowest and highest served version."""

    async def handle(self, call: TargetCall[Any]) -> Message | None:
        """Execute a request after due timers: an expired lock is expired for the next request."""
        call.cluster.timers.run_due()
        return await self._handler(call)

    @cached_property
    def _handler(self) -> Handler:
        handler: Handler = import_module(f"{apis.__name__}.k{self.key:02}_{self.key.name.lower()}").handle
        return handler


APIS: tuple[TargetApi, ...] = (
    TargetApi(ApiKey.PRODUCE, (3, 13)),
    TargetApi(ApiKey.FETCH, (4, 17)),
    TargetApi(ApiKey.LIST_OFFSETS, (1, 10)),
    TargetApi(ApiKey.METADATA, (0, 13)),
    TargetApi(ApiKey.OFFSET_COMMIT, (2, 10)),
    TargetApi(ApiKey.OFFSET_FETCH, (1, 10)),
    TargetApi(ApiKey.FIND_COORDINATOR, (0, 6)),
    TargetApi(ApiKey.JOIN_GROUP, (0, 9)),
    TargetApi(ApiKey.HEARTBEAT, (0, 4)),
    TargetApi(ApiKey.LEAVE_GROUP, (0, 5)),
    TargetApi(ApiKey.SYNC_GROUP, (0, 5)),
    TargetApi(ApiKey.DESCRIBE_GROUPS, (0, 6)),
    TargetApi(ApiKey.LIST_GROUPS, (0, 5)),
    TargetApi(ApiKey.API_VERSIONS, (0, 4)),
    TargetApi(ApiKey.CREATE_TOPICS, (2, 7)),
    TargetApi(ApiKey.DELETE_TOPICS, (1, 6)),
    TargetApi(ApiKey.DELETE_RECORDS, (0, 2)),
    TargetApi(ApiKey.INIT_PRODUCER_ID, (0, 5)),
    TargetApi(ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4)),
    TargetApi(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 3)),
    TargetApi(ApiKey.ADD_OFFSETS_TO_TXN, (0, 4)),
    TargetApi(ApiKey.END_TXN, (0, 5)),
    TargetApi(ApiKey.TXN_OFFSET_COMMIT, (0, 5)),
    TargetApi(ApiKey.DESCRIBE_CONFIGS, (1, 4)),
    TargetApi(ApiKey.ALTER_CONFIGS, (0, 2)),
    TargetApi(ApiKey.CREATE_PARTITIONS, (0, 3)),
    TargetApi(ApiKey.DELETE_GROUPS, (0, 2)),
    TargetApi(ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1)),
    TargetApi(ApiKey.OFFSET_DELETE, (0, 0)),
    TargetApi(ApiKey.DESCRIBE_CLUSTER, (0, 2)),
    TargetApi(ApiKey.DESCRIBE_PRODUCERS, (0, 0)),
    TargetApi(ApiKey.DESCRIBE_TRANSACTIONS, (0, 0)),
    TargetApi(ApiKey.LIST_TRANSACTIONS, (0, 2)),
    TargetApi(ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 1)),
    TargetApi(ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1)),
    TargetApi(ApiKey.LIST_CONFIG_RESOURCES, (0, 1)),
    TargetApi(ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0, 0)),
    TargetApi(ApiKey.SHARE_GROUP_HEARTBEAT, (1, 1)),
    TargetApi(ApiKey.SHARE_GROUP_DESCRIBE, (1, 1)),
    TargetApi(ApiKey.SHARE_FETCH, (1, 2)),
    TargetApi(ApiKey.SHARE_ACKNOWLEDGE, (1, 2)),
    TargetApi(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, (0, 1)),
    TargetApi(ApiKey.ALTER_SHARE_GROUP_OFFSETS, (0, 0)),
    TargetApi(ApiKey.DELETE_SHARE_GROUP_OFFSETS, (0, 0)),
)


def offer(cluster: TargetCluster, by_server: Mapping[int, tuple[int, int]]) -> None:
    """Offer all APIs, and `by_server` that the server handles itself (lowest and highest version by key)."""
    cluster.offered = dict(sorted({**{int(api.key): api.versions for api in APIS}, **by_server}.items()))
