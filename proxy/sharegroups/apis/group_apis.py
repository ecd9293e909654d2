"""The APIs about groups in general that share groups served here change: which handler answers which requests."""

from __future__ import annotations

from typing import Any

from proxy.durable.gate import ShareGate
from proxy.fleet.group_owners import Fleet, HeldAnywhere
from proxy.forwarding.route_table import Served
from proxy.forwarding.routes import Handler
from proxy.sharegroups.apis import (
    foreign_groups,
    k15_describe_groups,
    k16_list_groups,
    k32_describe_configs,
    k42_delete_groups,
    k44_incremental_alter_configs,
    k74_list_config_resources,
)
from proxy.sharegroups.apis.group_configs import is_group_resource
from proxy.sharegroups.apis.group_ids import any_entry, any_request, names_held_group
from proxy.sharegroups.model.coordinator import ShareCoordinator
from proxy.sharegroups.owner_routing import gated
from proxy.sharegroups.while_loading import or_loading, several_or_loading, when_all_is_loaded, when_loaded

TXN_OFFSET_COMMIT_GROUP = 1
"""Strings before the group id in TxnOffsetCommit: the transactional id."""


def served(
    coordinator: ShareCoordinator, fleet: Fleet | None = None, gate: ShareGate | None = None
) -> dict[int, Served]:
    """API key -> handler and the requests it gets, for a proxy that serves share groups itself.

    With a gate, requests that a broker would answer by making a group, or by denying that there is one, wait while it
    is not known yet which groups are held (`share_loading`).
    """
    groups = HeldAnywhere(coordinator, fleet)
    held = names_held_group(groups)
    making = or_loading(gate, held)
    making_by_transaction = or_loading(gate, names_held_group(groups, TXN_OFFSET_COMMIT_GROUP), TXN_OFFSET_COMMIT_GROUP)
    deleting, deleted = several_or_loading(gate, groups, _groups_names)
    describing, described = several_or_loading(None, groups, _group_ids)
    classic = any_entry(lambda request: request.groups, groups.__contains__)
    return {
        foreign_groups.JOIN_GROUP: Served(when_loaded(foreign_groups.join_group), making),
        foreign_groups.OFFSET_COMMIT: Served(when_loaded(foreign_groups.offset_commit), making),
        foreign_groups.OFFSET_DELETE: Served(foreign_groups.offset_delete, held),
        foreign_groups.TXN_OFFSET_COMMIT: Served(when_loaded(foreign_groups.txn_offset_commit), making_by_transaction),
        foreign_groups.CONSUMER_GROUP_HEARTBEAT: Served(when_loaded(foreign_groups.consumer_group_heartbeat), making),
        foreign_groups.STREAMS_GROUP_HEARTBEAT: Served(when_loaded(foreign_groups.streams_group_heartbeat), making),
        foreign_groups.CONSUMER_GROUP_DESCRIBE: Served(foreign_groups.consumer_group_describe, describing, described),
        foreign_groups.STREAMS_GROUP_DESCRIBE: Served(foreign_groups.streams_group_describe, describing, described),
        k15_describe_groups.KEY: Served(k15_describe_groups.handle, describing, classic),
        k16_list_groups.KEY: Served(when_all_is_loaded(k16_list_groups.handle)),
        k32_describe_configs.KEY: Served(_gated(k32_describe_configs.KEY), any_request, _configs),
        k42_delete_groups.KEY: Served(_gated(k42_delete_groups.KEY), deleting, deleted),
        k44_incremental_alter_configs.ALTER_CONFIGS: Served(
            _gated(k44_incremental_alter_configs.ALTER_CONFIGS), any_request, _configs
        ),
        k44_incremental_alter_configs.KEY: Served(_gated(k44_incremental_alter_configs.KEY), any_request, _configs),
        k74_list_config_resources.KEY: Served(
            when_all_is_loaded(k74_list_config_resources.handle), k74_list_config_resources.serve_here
        ),
    }


def of_owner() -> dict[int, Handler]:
    """API key -> handler, of what only the owner of a group can answer."""
    return dict(_OWNERS)


_OWNERS: dict[int, Handler] = {
    k32_describe_configs.KEY: k32_describe_configs.handle,
    k42_delete_groups.KEY: k42_delete_groups.handle,
    k44_incremental_alter_configs.ALTER_CONFIGS: k44_incremental_alter_configs.handle_alter_configs,
    k44_incremental_alter_configs.KEY: k44_incremental_alter_configs.handle,
}


def _gated(key: int) -> Handler:
    return gated(key, _OWNERS[key])


def _groups_names(request: Any) -> list[str]:
    return list(request.groups_names)


def _group_ids(request: Any) -> list[str]:
    return list(request.group_ids)


_configs = any_entry(lambda request: request.resources or (), is_group_resource)
