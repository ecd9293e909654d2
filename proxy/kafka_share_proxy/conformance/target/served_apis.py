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
    k15_describe_groups,
    k16_list_groups,
    k18_api_versions,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k22_init_producer_id,
    k23_offset_for_leader_epoch,
    k24_add_partitions_to_txn,
    k25_add_offsets_to_txn,
    k26_end_txn,
    k28_txn_offset_commit,
    k32_describe_configs,
    k33_alter_configs,
    k37_create_partitions,
    k42_delete_groups,
    k44_incremental_alter_configs,
    k47_offset_delete,
    k60_describe_cluster,
    k61_describe_producers,
    k65_describe_transactions,
    k66_list_transactions,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
    k74_list_config_resources,
    k75_describe_topic_partitions,
    k76_share_group_heartbeat,
    k77_share_group_describe,
    k78_share_fetch,
    k79_share_acknowledge,
    k90_describe_share_group_offsets,
    k91_alter_share_group_offsets,
    k92_delete_share_group_offsets,
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
        k15_describe_groups,
        k16_list_groups,
        k18_api_versions,
        k19_create_topics,
        k20_delete_topics,
        k21_delete_records,
        k22_init_producer_id,
        k23_offset_for_leader_epoch,
        k24_add_partitions_to_txn,
        k25_add_offsets_to_txn,
        k26_end_txn,
        k28_txn_offset_commit,
        k32_describe_configs,
        k33_alter_configs,
        k37_create_partitions,
        k42_delete_groups,
        k44_incremental_alter_configs,
        k47_offset_delete,
        k60_describe_cluster,
        k61_describe_producers,
        k65_describe_transactions,
        k66_list_transactions,
        k68_consumer_group_heartbeat,
        k69_consumer_group_describe,
        k74_list_config_resources,
        k75_describe_topic_partitions,
        k76_share_group_heartbeat,
        k77_share_group_describe,
        k78_share_fetch,
        k79_share_acknowledge,
        k90_describe_share_group_offsets,
        k91_alter_share_group_offsets,
        k92_delete_share_group_offsets,
    )
)


def offer(cluster: TargetCluster, others: Mapping[int, tuple[int, int]]) -> None:
    """Offer all APIs, and `others` that the server handles itself (lowest and highest version by key)."""
    cluster.offered = dict(sorted({**{int(api.key): api.versions for api in APIS}, **others}.items()))
