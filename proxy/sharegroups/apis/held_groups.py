"""Which requests about groups a proxy wants that serves share groups: `DeclaredApi.wants` and `picks`.

With `or_loading` requests are wanted as well while it is not known yet which groups are held: a broker would answer
them by making a group, or by denying that there is one (`while_loading`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from proxy.fleet.group_owners import HeldAnywhere
from proxy.forwarding.declared_api import Look
from proxy.forwarding.routes import Picks
from proxy.sharegroups.apis.group_ids import any_entry, leading_string, names_held_group
from proxy.sharegroups.services import ShareServices

Names = Callable[[Any], Iterable[str]]
"""The groups a decoded request is about."""


def held_anywhere(services: ShareServices) -> HeldAnywhere:
    """The ids of share groups that this proxy or another one holds."""
    return HeldAnywhere(services.coordinator.groups, services.fleet)


def first_string_is_held(index: int = 0, *, or_loading: bool) -> Callable[[ShareServices], Look]:
    """Requests about one group: its id is the string at this index of the body."""

    def wants(services: ShareServices) -> Look:
        held, gate = names_held_group(held_anywhere(services), index), services.gate

        def look(frame: memoryview) -> bool:
            if not gate.loading:
                return held(frame)
            group_id = leading_string(frame, index)
            return held(frame) or (group_id is not None and gate.is_loading(group_id))

        return look if or_loading else held

    return wants


def any_is_held(*, or_loading: bool) -> Callable[[ShareServices], Look]:
    """Requests about several groups: whether there is any group that they could name."""

    def wants(services: ShareServices) -> Look:
        groups, gate = held_anywhere(services), services.gate
        return lambda _frame: len(groups) > 0 or (or_loading and bool(gate.loading))

    return wants


def names_held(names: Names, *, or_loading: bool) -> Callable[[ShareServices], Picks]:
    """Requests about several groups of which one is held."""

    def picks(services: ShareServices) -> Picks:
        groups, gate = held_anywhere(services), services.gate
        return any_entry(names, lambda name: name in groups or (or_loading and gate.is_loading(name)))

    return picks
