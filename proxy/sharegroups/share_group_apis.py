"""Every API that is answered here while share groups are served here: a new one is a file in `apis/` and one line."""

from __future__ import annotations

from proxy.forwarding.declared_api import DeclaredApi, Needs, Served
from proxy.forwarding.routes import FramedHandler, Handler
from proxy.sharegroups.apis import (
    foreign_groups,
    k15_describe_groups,
    k16_list_groups,
    k32_describe_configs,
    k42_delete_groups,
    k44_incremental_alter_configs,
    k74_list_config_resources,
    k76_share_group_heartbeat,
    k77_share_group_describe,
    k78_share_fetch,
    k79_share_acknowledge,
    k90_describe_share_group_offsets,
    k91_alter_share_group_offsets,
    k92_delete_share_group_offsets,
)
from proxy.sharegroups.apis.held_groups import held_anywhere
from proxy.sharegroups.owner_routing import OwnedApi
from proxy.sharegroups.placement import ShareChoice, ShareRules, chosen
from proxy.sharegroups.services import ShareServices
from proxy.sharegroups.while_loading import when_all_is_loaded, when_loaded

APIS: tuple[DeclaredApi[ShareServices], ...] = (
    *foreign_groups.APIS,
    k15_describe_groups.API,
    k16_list_groups.API,
    k32_describe_configs.API,
    k42_delete_groups.API,
    *k44_incremental_alter_configs.APIS,
    k74_list_config_resources.API,
    k76_share_group_heartbeat.API,
    k77_share_group_describe.API,
    k78_share_fetch.API,
    k79_share_acknowledge.API,
    k90_describe_share_group_offsets.API,
    k91_alter_share_group_offsets.API,
    k92_delete_share_group_offsets.API,
)


def served(services: ShareServices, rules: ShareRules | None = None) -> dict[int, Served]:
    """API key -> handler, and which requests it gets. Without rules every share group lives here."""
    found = {api.key: api.served(services, _handler(api, services)) for api in APIS}
    if rules is None or not rules.are_mixed:
        return found
    choice = ShareChoice(rules, held_anywhere(services), services.gate)
    return {api.key: chosen(api, found[api.key], choice, services) for api in APIS}


def of_owner(services: ShareServices) -> dict[int, FramedHandler]:
    """API key -> handler, of what other proxies may ask of the owner of a group; None: this is not the owner."""
    return {api.key: _owned(api, services).handle_peers for api in APIS if api.needs is Needs.OWNER}


def _handler(api: DeclaredApi[ShareServices], services: ShareServices) -> Handler:
    """Run where the state that it needs is, and when."""
    if api.needs is Needs.OWNER:
        return _owned(api, services).handle
    if api.needs is Needs.GROUP_LOADED:
        return when_loaded(api, services)
    if api.needs is Needs.ALL_LOADED:
        return when_all_is_loaded(api, services)
    return api.handler(services)


def _owned(api: DeclaredApi[ShareServices], services: ShareServices) -> OwnedApi:
    return OwnedApi(api, api.handler(services), services)
