"""All APIs that views change. A new API needs a file in `apis/` and one line. Views precede the other features."""

from __future__ import annotations

from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Served
from kafka_share_proxy.views.apis import (
    committed_views,
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k11_join_group,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k23_offset_for_leader_epoch,
    k24_add_partitions_to_txn,
    k37_create_partitions,
    k68_consumer_group_heartbeat,
    k75_describe_topic_partitions,
    share_group_refusals,
)
from kafka_share_proxy.views.services import ViewServices

APIS: tuple[DeclaredApi[ViewServices], ...] = (
    k00_produce.API,
    k01_fetch.API,
    k02_list_offsets.API,
    k03_metadata.API,
    k11_join_group.API,
    k19_create_topics.API,
    k20_delete_topics.API,
    k21_delete_records.API,
    k23_offset_for_leader_epoch.API,
    k24_add_partitions_to_txn.API,
    k37_create_partitions.API,
    k68_consumer_group_heartbeat.API,
    k75_describe_topic_partitions.API,
    *committed_views.APIS,
    *share_group_refusals.APIS,
)


def served(views: ViewServices, *, inspects_produce: bool = True) -> dict[int, Served]:
    """Return the handlers by API key, without that of Produce if not `inspects_produce`."""
    return {api.key: api.served(views) for api in APIS if inspects_produce or api is not k00_produce.API}
