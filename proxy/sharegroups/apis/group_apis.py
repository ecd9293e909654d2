"""The APIs about groups in general that share groups served here change: which handler answers which requests."""

from __future__ import annotations

from typing import Any

from proxy.fleet.group_owners import HeldAnywhere
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
from proxy.sharegroups.owner_routing import gated
from proxy.sharegroups.services import ShareHandler, ShareServices
from proxy.sharegroups.while_loading import or_loading, several_or_loading, when_all_is_loaded, when_loaded

TXN_OFFSET_COMMIT_GROUP = 1
"""Strings before the group id in TxnOffsetCommit: the transactional id."""


def served(services: ShareServices) -> dict[int, Served]:
    """API key -> handler and the requests it gets, for a proxy that serves share groups itself.

    Requests that a broker would answer by making a group, or by denying that there is one, wait while it is not known
    yet which groups are held (`while_loading`).
    """
    groups = HeldAnywhere(services.coordinator, services.fleet)
    return _of_other_types(services, groups) | _of_any_type(services, groups)


def _of_other_types(services: ShareServices, groups: HeldAnywhere) -> dict[int, Served]:
    held = names_held_group(groups)
    making = or_loading(services.gate, held)
    making_by_transaction = or_loading(
        services.gate, names_held_group(groups, TXN_OFFSET_COMMIT_GROUP), TXN_OFFSET_COMMIT_GROUP
    )
    describing, described = several_or_loading(None, groups, _group_ids)

    def waits(handler: ShareHandler) -> Handler:
        return when_loaded(handler, services)

    return {
        foreign_groups.JOIN_GROUP: Served(waits(foreign_groups.join_group), making),
        foreign_groups.OFFSET_COMMIT: Served(waits(foreign_groups.offset_commit), making),
        foreign_groups.OFFSET_DELETE: Served(bound(foreign_groups.offset_delete, services), held),
        foreign_groups.TXN_OFFSET_COMMIT: Served(waits(foreign_groups.txn_offset_commit), making_by_transaction),
        foreign_groups.CONSUMER_GROUP_HEARTBEAT: Served(waits(foreign_groups.consumer_group_heartbeat), making),
        foreign_groups.STREAMS_GROUP_HEARTBEAT: Served(waits(foreign_groups.streams_group_heartbeat), making),
        foreign_groups.CONSUMER_GROUP_DESCRIBE: Served(
            bound(foreign_groups.consumer_group_describe, services), describing, described
        ),
        foreign_groups.STREAMS_GROUP_DESCRIBE: Served(
            bound(foreign_groups.streams_group_describe, services), describing, described
        ),
    }


def _of_any_type(services: ShareServices, groups: HeldAnywhere) -> dict[int, Served]:
    describing, _ = several_or_loading(None, groups, _group_ids)
    deleting, deleted = several_or_loading(services.gate, groups, _groups_names)
    classic = any_entry(lambda request: request.groups, groups.__contains__)
    listed = when_all_is_loaded(k16_list_groups.handle, services)
    resources = when_all_is_loaded(k74_list_config_resources.handle, services)
    configured = (
        k32_describe_configs.KEY,
        k44_incremental_alter_configs.ALTER_CONFIGS,
        k44_incremental_alter_configs.KEY,
    )
    return {
        k15_describe_groups.KEY: Served(bound(k15_describe_groups.handle, services), describing, classic),
        k16_list_groups.KEY: Served(listed),
        k42_delete_groups.KEY: Served(_gated(k42_delete_groups.KEY, services), deleting, deleted),
        k74_list_config_resources.KEY: Served(resources, k74_list_config_resources.serve_here),
    } | {key: Served(_gated(key, services), any_request, _configs) for key in configured}


def bound(handler: ShareHandler, services: ShareServices) -> Handler:
    """The handler with what it is given."""
    return lambda call: handler(call, services)


def of_owner() -> dict[int, ShareHandler]:
    """API key -> handler, of what only the owner of a group can answer."""
    return dict(_OWNERS)


_OWNERS: dict[int, ShareHandler] = {
    k32_describe_configs.KEY: k32_describe_configs.handle,
    k42_delete_groups.KEY: k42_delete_groups.handle,
    k44_incremental_alter_configs.ALTER_CONFIGS: k44_incremental_alter_configs.handle_alter_configs,
    k44_incremental_alter_configs.KEY: k44_incremental_alter_configs.handle,
}


def _gated(key: int, services: ShareServices) -> Handler:
    return gated(key, _OWNERS[key], services)


def _groups_names(request: Any) -> list[str]:
    return list(request.groups_names)


def _group_ids(request: Any) -> list[str]:
    return list(request.group_ids)


_configs = any_entry(lambda request: request.resources or (), is_group_resource)
