"""Selection of the group requests that a proxy serving share groups handles: `DeclaredApi.wants` and `picks`.

With `or_loading`, requests are also selected while the held groups are not known yet. A broker would serve them by
creating a group, or respond that no such group exists (`while_loading`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from kafka_share_proxy.fleet.group_owners import HeldAnywhere
from kafka_share_proxy.forwarding.dispatch.early_matches import ByGroupId, ByKnownGroup, EarlyMatch, Whenever
from kafka_share_proxy.forwarding.dispatch.routes import Picks
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.definitions.messages import Message

M = TypeVar("M", bound=Message)
E = TypeVar("E")


def held_anywhere(services: ShareServices) -> HeldAnywhere:
    """Return the ids of share groups that this proxy or another one holds."""
    return HeldAnywhere(services.coordinator.groups, services.fleet)


def named_group_is_held(*, or_loading: bool) -> Callable[[ShareServices], EarlyMatch]:
    def wants(services: ShareServices) -> EarlyMatch:
        groups, gate = held_anywhere(services), services.gate
        if not or_loading:
            held = ByGroupId(lambda name: name in groups, has_any=lambda: len(groups) > 0)
            return ByKnownGroup(held, groups.by_id)
        exactly = ByGroupId(
            lambda name: name in groups or gate.is_loading(name),
            has_any=lambda: len(groups) > 0 or bool(gate.loading),
        )
        return ByKnownGroup(exactly, groups.by_id, unless=(gate.loading,))

    return wants


def any_is_held(*, or_loading: bool) -> Callable[[ShareServices], EarlyMatch]:
    """Select requests about several groups if there is any group that they could name."""

    def wants(services: ShareServices) -> EarlyMatch:
        groups, gate = held_anywhere(services), services.gate
        return Whenever(lambda: len(groups) > 0 or (or_loading and bool(gate.loading)))

    return wants


def names_held(names: Callable[[M], Iterable[str]], *, or_loading: bool) -> Callable[[ShareServices], Picks]:
    """Select requests about several groups of which one is held. `names` returns the groups in a decoded request."""

    def picks(services: ShareServices) -> Picks:
        groups, gate = held_anywhere(services), services.gate
        return any_entry(names, lambda name: name in groups or (or_loading and gate.is_loading(name)))

    return picks


def any_entry(entries: Callable[[M], Iterable[E]], is_ours: Callable[[E], bool]) -> Picks:
    """Select requests in which one of the entries is ours. `entries` returns the entries of a decoded request."""

    async def picks(call: Call[M]) -> bool:
        for entry in entries(call.message):
            if is_ours(entry):
                return True
            await call.work.step(len(entry) if isinstance(entry, str) else 0)
        return False

    return picks
