"""Every API that is answered here while share groups are served here, with its handler: what `table.build` is given."""

from __future__ import annotations

from proxy.fleet.group_owners import HeldAnywhere
from proxy.forwarding.route_table import Served
from proxy.forwarding.routes import Handler
from proxy.sharegroups.apis import (
    group_apis,
    k76_share_group_heartbeat,
    k77_share_group_describe,
    k78_share_fetch,
    k79_share_acknowledge,
    k90_describe_share_group_offsets,
    k91_alter_share_group_offsets,
    k92_delete_share_group_offsets,
)
from proxy.sharegroups.owner_routing import at_owner, gated
from proxy.sharegroups.placement import ShareChoice, ShareRules, chosen
from proxy.sharegroups.services import ShareServices

_SHARE = (
    k76_share_group_heartbeat,
    k77_share_group_describe,
    k78_share_fetch,
    k79_share_acknowledge,
    k90_describe_share_group_offsets,
    k91_alter_share_group_offsets,
    k92_delete_share_group_offsets,
)


def served(services: ShareServices, rules: ShareRules | None = None) -> dict[int, Served]:
    """API key -> handler, and which requests it gets. Without rules every share group lives here."""
    own = {api.KEY: Served(gated(api.KEY, api.handle, services)) for api in _SHARE}
    everything = group_apis.served(services) | own
    if rules is None or not rules.are_mixed:
        return everything
    held = HeldAnywhere(services.coordinator, services.fleet)
    return chosen(everything, ShareChoice(rules, held, services.gate), services)


def of_owner(services: ShareServices) -> dict[int, Handler]:
    """API key -> handler, of what other proxies may ask of the owner of a group; None: this is not the owner."""
    handlers = group_apis.of_owner() | {api.KEY: api.handle for api in _SHARE}
    return {key: at_owner(handler, services) for key, handler in handlers.items()}
