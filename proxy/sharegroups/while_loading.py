"""Requests about groups of any type while nobody knows which ids are share groups: their state is being loaded.

A broker that loads a group's partition tells everybody who asks about that group to wait (14), and so does this proxy:
forwarded, such a request would make a group of another type under the id of a share group, or deny that there is one.
It is held for a bounded time first; most loads are over by then. Once state is loaded, what is about no share group
goes to the broker as if nothing had been. Ordinary groups do not pay for trouble: where loading takes longer than
`LOADING_MAX_S`, their requests are forwarded again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from proxy.durable.gate import HOLD_MAX_S, ShareGate
from proxy.fleet.group_owners import HeldAnywhere
from proxy.forwarding.ask_and_reply import reply
from proxy.forwarding.interfaces import Call
from proxy.forwarding.routes import Handler, Picks
from proxy.loop.waiting import first_until
from proxy.sharegroups.apis.group_ids import ServeHere, any_entry, leading_string
from proxy.sharegroups.services import ShareHandler, ShareServices
from proxy.sharegroups.state_records import state_partition
from proxy.wire import registry
from proxy.wire.errors import ErrorCode
from proxy.wire.frames import Answer

LOADING_MAX_S = 30.0
"""State that is not loaded after this is in trouble, and may be for long."""

LIST_GROUPS, LIST_CONFIG_RESOURCES, JOIN_GROUP = 16, 74, 11
OFFSET_COMMIT, TXN_OFFSET_COMMIT = 8, 28
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

Names = Callable[[Any], Iterable[str]]
"""The groups a decoded request is about."""


def or_loading(gate: ShareGate | None, held: ServeHere, index: int = 0) -> ServeHere:
    """Requests about a group that is held, or may be: its id is the string at this index."""
    if gate is None:
        return held

    def serve_here(frame: memoryview) -> bool:
        if not gate.loading:
            return held(frame)
        group_id = leading_string(frame, index)
        return held(frame) or (group_id is not None and gate.is_loading(group_id))

    return serve_here


def several_or_loading(gate: ShareGate | None, groups: HeldAnywhere, names: Names) -> tuple[ServeHere, Picks]:
    """As `or_loading`, for requests that name several groups: whether any can be ours, and which are."""

    def serve_here(_frame: memoryview) -> bool:
        return len(groups) > 0 or (gate is not None and bool(gate.loading))

    def is_ours(name: str) -> bool:
        return name in groups or (gate is not None and gate.is_loading(name))

    return serve_here, any_entry(names, is_ours)


def when_loaded(handler: ShareHandler, services: ShareServices) -> Handler:
    """The handler of a request about one group, once it is known whether that is a share group."""

    async def handle(call: Call) -> Answer | None:
        group_id = call.message.group_id
        if not await loaded(services, (state_partition(group_id),)):
            return reply(call, _refusal(call))
        return await handler(call, services) if services.holds(group_id) else None

    return handle


def when_all_is_loaded(handler: ShareHandler, services: ShareServices) -> Handler:
    """The handler of a request about all groups."""

    async def handle(call: Call) -> Answer | None:
        if not await loaded(services, services.gate.loading):
            return reply(call, _refusal(call))
        return await handler(call, services)

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


def _refusal(call: Call) -> Any:
    name = registry.API_KEYS[call.key]
    response = registry.message(f"{name}Response")
    if call.key == LIST_GROUPS:
        return response(error_code=LOADING, groups=[])
    if call.key == LIST_CONFIG_RESOURCES:
        return response(error_code=LOADING, config_resources=[])
    if call.key == JOIN_GROUP:
        return response(error_code=LOADING, generation_id=-1, protocol_name="", leader="", member_id="", members=[])
    if call.key not in (OFFSET_COMMIT, TXN_OFFSET_COMMIT):
        return response(error_code=LOADING, error_message="Share groups are being loaded.")
    topic, partition = getattr(response, f"{name}ResponseTopic"), getattr(response, f"{name}ResponsePartition")
    topics = [
        topic(
            **{each: getattr(asked, each) for each in ("name", "topic_id") if each in topic.__slots__},
            partitions=[partition(partition_index=p.partition_index, error_code=LOADING) for p in asked.partitions],
        )
        for asked in call.message.topics or ()
    ]
    return response(topics=topics)
