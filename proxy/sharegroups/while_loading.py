"""Requests about groups of any type while nobody knows which ids are share groups: their state is being loaded.

A broker that loads a group's partition tells everybody who asks about that group to wait (14), and so does this proxy:
forwarded, such a request would make a group of another type under the id of a share group, or deny that there is one.
It is held for a bounded time first; most loads are over by then. Once state is loaded, what is about no share group
goes to the broker as if nothing had been. Ordinary groups do not pay for trouble: where loading takes longer than
`LOADING_MAX_S`, their requests are forwarded again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from proxy.durable.gate import HOLD_MAX_S
from proxy.durable.state_partitions import state_partition
from proxy.forwarding.ask_and_reply import reply
from proxy.forwarding.declared_api import DeclaredApi
from proxy.forwarding.interfaces import Call
from proxy.forwarding.routes import Handler
from proxy.loop.waiting import first_until
from proxy.sharegroups.services import ShareServices
from proxy.wire.errors import ErrorCode
from proxy.wire.frames import Answer
from proxy.wire.messages import Message

LOADING_MAX_S = 30.0
"""State that is not loaded after this is in trouble, and may be for long."""

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
WORDS = "Share groups are being loaded."


def when_loaded(api: DeclaredApi[ShareServices], services: ShareServices) -> Handler:
    """The handler of a request about one group, once it is known whether that is a share group."""
    handler = api.handler(services)

    async def handle(call: Call[Any]) -> Answer | Message | None:
        group_id = call.message.group_id
        if not await loaded(services, (state_partition(group_id),)):
            return await _refusal(api, call)
        return await handler(call) if services.holds(group_id) else None

    return handle


def when_all_is_loaded(api: DeclaredApi[ShareServices], services: ShareServices) -> Handler:
    """The handler of a request about all groups."""
    handler = api.handler(services)

    async def handle(call: Call[Any]) -> Answer | Message | None:
        if not await loaded(services, services.gate.loading):
            return await _refusal(api, call)
        return await handler(call)

    return handle


async def loaded(services: ShareServices, partitions: Collection[int]) -> bool:
    """Wait until none of these is being loaded any more; False: the client is to come again."""
    gate, timers = services.gate, services.timers
    wanted, deadline = tuple(partitions), timers.now() + HOLD_MAX_S
    while any(partition in gate.loading for partition in wanted):
        now = timers.now()
        if any(gate.loading_for(partition, now) > LOADING_MAX_S for partition in wanted):
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
    assert api.away is not None  # noqa: S101  # of our own declarations: see share_group_apis
    return reply(call, await api.away(call, LOADING, WORDS))
