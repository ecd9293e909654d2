"""Every API that views change: a new one is a file in `apis/` and one line. Views go in front of other features."""

from __future__ import annotations

from proxy.forwarding.declared_api import DeclaredApi, Served
from proxy.views.apis import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k23_offset_for_leader_epoch,
    k37_create_partitions,
    k68_consumer_group_heartbeat,
    k75_describe_topic_partitions,
    share_group_refusals,
)
from proxy.views.services import ViewServices

APIS: tuple[DeclaredApi[ViewServices], ...] = (
    k00_produce.API,
    k01_fetch.API,
    k02_list_offsets.API,
    k03_metadata.API,
    k19_create_topics.API,
    k20_delete_topics.API,
    k21_delete_records.API,
    k23_offset_for_leader_epoch.API,
    k37_create_partitions.API,
    k68_consumer_group_heartbeat.API,
    k75_describe_topic_partitions.API,
    *share_group_refusals.APIS,
)


def served(views: ViewServices) -> dict[int, Served]:
    """API key -> handler, and which requests it gets, where views are served."""
    return {api.key: api.served(views) for api in APIS}
