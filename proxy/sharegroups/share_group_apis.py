"""Every API that is answered here while share groups are served here, with its handler: what `table.build` is given."""

from __future__ import annotations

from proxy.durable.gate import ShareGate
from proxy.fleet.group_owners import Fleet, HeldAnywhere
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
from proxy.sharegroups.model.coordinator import ShareCoordinator
from proxy.sharegroups.owner_routing import gated
from proxy.sharegroups.placement import ShareChoice, ShareRules, chosen

_SHARE = (
    k76_share_group_heartbeat,
    k77_share_group_describe,
    k78_share_fetch,
    k79_share_acknowledge,
    k90_describe_share_group_offsets,
    k91_alter_share_group_offsets,
    k92_delete_share_group_offsets,
)


def served(
    coordinator: ShareCoordinator,
    fleet: Fleet | None = None,
    gate: ShareGate | None = None,
    rules: ShareRules | None = None,
) -> dict[int, Served]:
    """API key -> handler, and which requests it gets. Without rules every share group lives here."""
    groups = group_apis.served(coordinator, fleet, gate)
    everything = groups | {api.KEY: Served(gated(api.KEY, api.handle)) for api in _SHARE}
    if rules is None or not rules.are_mixed:
        return everything
    return chosen(everything, ShareChoice(rules, HeldAnywhere(coordinator, fleet), gate or ShareGate()))


def of_owner() -> dict[int, Handler]:
    """API key -> handler, of what other proxies may ask of the owner of a group."""
    return group_apis.of_owner() | {api.KEY: api.handle for api in _SHARE}
