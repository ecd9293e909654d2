"""Requests about groups of any type while share state is being loaded and the ids of share groups are unknown.

A forwarded request could create a group of another type under the id of a share group (sharegroups/README.md rule 71).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.forwarding.dispatch.declared_api import HOLD_MAX_S, DeclaredApi
from kafka_share_proxy.forwarding.dispatch.routes import Handler
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import reply
from kafka_share_proxy.loop.waiting import first_until
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.codec.frames import ResponseFrame
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode

LOADING_MAX_S = 30.0
"""Seconds after which a load counts as failing."""

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
MESSAGE = "Share groups are being loaded."


def when_loaded(api: DeclaredApi[ShareServices], services: ShareServices) -> Handler:
    """Return the handler of a request about one group that first waits until its type is known."""
    handler = api.handler(services)

    async def handle(call: Call[Any]) -> ResponseFrame | Message | None:
        group_id = call.message.group_id
        if not await group_loaded(services, (state_partition(group_id),)):
            return await _refusal(api, call)
        return await handler(call) if services.holds(group_id) else None

    return handle


def when_all_is_loaded(api: DeclaredApi[ShareServices], services: ShareServices) -> Handler:
    """Return the handler of a request about all groups that first waits until all state is loaded."""
    handler = api.handler(services)

    async def handle(call: Call[Any]) -> ResponseFrame | Message | None:
        if not await loaded(services, services.gate.loading):
            return await _refusal(api, call)
        return await handler(call)

    return handle


async def group_loaded(services: ShareServices, partitions: Collection[int]) -> bool:
    """Wait as `loaded`, for partitions of groups in use, which are loaded before others."""
    services.gate.request([partition for partition in partitions if partition in services.gate.loading])
    return await loaded(services, partitions)


async def loaded(services: ShareServices, partitions: Collection[int]) -> bool:
    """Wait until none of the partitions is being loaded. Return False if the client has to retry."""
    gate, timers = services.gate, services.timers
    awaited, deadline = tuple(partitions), timers.now() + HOLD_MAX_S
    while any(partition in gate.loading for partition in awaited):
        now = timers.now()
        if any(gate.loading_for(partition, now) > LOADING_MAX_S for partition in awaited):
            return True
        if now >= deadline:
            return False
        changed = gate.wait()
        try:
            await first_until(timers, deadline, changed)
        finally:
            gate.forget(changed)
    return True


async def _refusal(api: DeclaredApi[ShareServices], call: Call[Any]) -> bytes:
    assert api.respond_unavailable is not None  # noqa: S101  # of our own declarations: see share_group_apis
    return reply(call, await api.respond_unavailable(call, LOADING, MESSAGE))
