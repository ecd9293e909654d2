"""Requests about share groups on their way to whoever owns the groups: here, behind the gate, or at another proxy.

Theory of operation. What a request is about lies in one or several state partitions. All of them owned and open here:
the handler runs, which is the only case a proxy alone knows. Owned by another proxy: that one is asked. Several owners:
the request is cut into one for each, and the answers are put together. Owned by nobody at this moment (taken over,
loading, moved): it waits for a bounded time, looks again, and is refused in the end. Members come again by themselves;
tools do not (the Java admin client repeats IncrementalAlterConfigs, AlterShareGroupOffsets, DeleteGroups and their like
neither on 14 nor on 15), so theirs wait longer where the state is being loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from proxy.durable.gate import HOLD_MAX_S
from proxy.fleet.group_owners import Peer, PeerLost
from proxy.forwarding.ask_and_reply import replied
from proxy.forwarding.interfaces import Call
from proxy.forwarding.routes import Handler
from proxy.loop.promise import Promise, Task, all_of
from proxy.loop.waiting import first_until
from proxy.sharegroups.apis.several_groups import SEVERAL, answers_of
from proxy.sharegroups.services import ShareHandler, ShareServices
from proxy.sharegroups.state_records import state_partition
from proxy.wire import registry
from proxy.wire.errors import ErrorCode
from proxy.wire.frames import Answer

DESCRIBE_CONFIGS, ALTER_CONFIGS, DELETE_GROUPS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 42, 44
HEARTBEAT, DESCRIBE, FETCH, ACKNOWLEDGE, DESCRIBE_OFFSETS, ALTER_OFFSETS, DELETE_OFFSETS = 76, 77, 78, 79, 90, 91, 92

OF_MEMBERS = frozenset({HEARTBEAT, FETCH, ACKNOWLEDGE})
"""Repeated by every client that is told to; all others are sent by tools, which repeat 15 until their own
time-out: where another proxy is known to serve share groups they are told so at once."""

LOOK_AGAIN_S = 0.1
"""A proxy that does not own what the table says it does is asked again after this, if nothing happens before."""

GROUPS_MAX = {
    DESCRIBE_CONFIGS: 2_000,
    ALTER_CONFIGS: 2_000,
    INCREMENTAL_ALTER_CONFIGS: 2_000,
    DELETE_GROUPS: 10_000,
    DESCRIBE: 10_000,
    DESCRIBE_OFFSETS: 10_000,
}
"""Groups in one request, by API key: each costs a question upstream or kilobytes of answer, and clients of
administrators name all groups of a coordinator at once. Whoever names more gets 42 for each of them."""

Refuse = Callable[[Call, ErrorCode, str], Coroutine[Any, Any, Any]]
"""The answer of an API that is not served now."""


def gated(key: int, handler: ShareHandler, services: ShareServices) -> Handler:
    """The handler, let in and out by the gate, or run by whoever owns what the request is about."""

    async def handle(call: Call) -> Answer | None:
        partitions = await partitions_of(call)
        if partitions is None:
            text = f"More than {GROUPS_MAX[call.key]} groups in one request."
            return await _refused(call, ErrorCode.INVALID_REQUEST, text)
        if services.gate.lets_in(partitions) and not services.gate.refused:
            return await _inside(handler, call, services, partitions)
        if key not in OF_MEMBERS and services.gate.standby:
            return await _refused(call, ErrorCode.POLICY_VIOLATION, services.gate.standby)
        return await _dispatch(handler, call, services, services.timers.now())

    assert key in _REFUSALS  # noqa: S101  # of our own tables
    return handle


def at_owner(handler: ShareHandler, services: ShareServices) -> Handler:
    """The handler of requests that other proxies send here as to the owner; None: this is not the owner."""

    async def handle(call: Call) -> Answer | None:
        partitions = await partitions_of(call)
        if partitions is None or not services.gate.lets_in(partitions):
            return None
        if not services.gate.refused.keys().isdisjoint(partitions):
            return await _refusal(call, services, partitions)
        return await _inside(handler, call, services, partitions)

    return handle


async def partitions_of(call: Call) -> tuple[int, ...] | None:
    """The state partitions of the groups that a request is about, each once; None where they are too many groups."""
    several = SEVERAL.get(call.key)
    if several is None:
        group_id = call.message.group_id
        return (state_partition(group_id),) if group_id else ()
    names = several.groups(call.message)
    if len(names) > GROUPS_MAX[call.key]:
        return None
    found: dict[int, None] = {}
    for name in filter(None, names):
        found[state_partition(name)] = None
        await call.work.pause()
    return tuple(found)


async def _dispatch(handler: ShareHandler, call: Call, services: ShareServices, began: float) -> Answer | None:
    """Whoever it takes, until somebody has answered or the time is over; it began to wait then."""
    while True:
        partitions = await partitions_of(call) or ()
        places = {partition: _place(services, partition) for partition in partitions}
        if len(set(map(id, places.values()))) > 1:
            parts = await _cut(call, places)
            return await _joined(call, await all_of(_dispatch(handler, part, services, began) for part in parts))
        answer = await _attempt(handler, call, services, partitions, next(iter(places.values()), None))
        if answer is not None:
            return answer
        now = services.timers.now()
        deadline = began + _wait_s(call, services, partitions)
        if now >= deadline:
            return await _refusal(call, services, partitions)
        await _change(services, min(deadline, now + LOOK_AGAIN_S) if places[partitions[0]] is not None else deadline)


def _wait_s(call: Call, services: ShareServices, partitions: Collection[int]) -> float:
    """How long the request may wait until somebody serves it."""
    is_loading = any(partition in services.gate.loading for partition in partitions)
    return services.options.state_wait_s if is_loading and call.key not in OF_MEMBERS else HOLD_MAX_S


async def _attempt(
    handler: ShareHandler, call: Call, services: ShareServices, partitions: Sequence[int], place: Peer | str | None
) -> Answer | None:
    """The answer; None when it is to be tried again."""
    if isinstance(place, str):
        return await _refusal(call, services, partitions)
    if place is None:
        inside = services.gate.lets_in(partitions)
        return await _inside(handler, call, services, partitions) if inside else None
    answer = place.serve(call)
    try:
        return await answer
    except PeerLost as error:
        return await _refused(call, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
    finally:
        place.give_up(answer)


async def _inside(
    handler: ShareHandler, call: Call, services: ShareServices, partitions: Sequence[int]
) -> Answer | None:
    """Run the handler; what it says counts only if no door was closed meanwhile and the lease holds.

    A lease that has ended is waited for: the group of proxies may have been away as long as the append was on its way
    (one broker crashed), and where the lease comes back behind an open door nobody else has been the owner.
    """
    gate, ended = services.gate, False
    done: Promise[None] = Promise()
    task: Task[Answer | None] = Task(handler(call, services), lambda _: done.set(None))

    def end() -> None:
        nonlocal ended
        ended = True
        task.cancel()
        done.set(None)
        gate.look()  # it may wait for the lease by now

    task.start()
    if not (task.finished and _holds(services, partitions)):
        gate.enter(partitions, end)
        try:
            await done
            deadline = services.timers.now() + HOLD_MAX_S
            while not (ended or _holds(services, partitions)) and services.timers.now() < deadline:
                await _change(services, deadline)
        finally:
            gate.leave(partitions, end)
            task.cancel()
    if task.error is not None:
        raise task.error
    if ended or not _holds(services, partitions):
        return await _refused(call, ErrorCode.COORDINATOR_NOT_AVAILABLE, gate.why_not(partitions)[1])
    return task.value


def _holds(services: ShareServices, partitions: Sequence[int]) -> bool:
    """Whether what is said about these may be told, by the lease."""
    return not partitions or services.gate.lease()


def _place(services: ShareServices, partition: int) -> Peer | str | None:
    """The proxy to ask; None: this one, or nobody now; words, where it is served nowhere."""
    if partition in services.gate.refused:
        return _UNREADABLE
    if services.fleet is None or services.gate.lets_in((partition,)):
        return None
    return services.fleet.owner(partition)


_UNREADABLE = "unreadable"


async def _change(services: ShareServices, deadline: float) -> None:
    changed = services.gate.wait()
    try:
        await first_until(services.timers, deadline, changed)
    finally:
        services.gate.forget(changed)


async def _refusal(call: Call, services: ShareServices, partitions: Iterable[int]) -> bytes:
    return await _refused(call, *services.gate.why_not(partitions))


async def _refused(call: Call, code: ErrorCode, reason: str) -> bytes:
    return await replied(call, await _REFUSALS[call.key](call, code, reason))


# Requests about several groups


async def _cut(call: Call, places: Mapping[int, object]) -> list[Call]:
    """One call for each place; what is about no group goes with the first."""
    several = SEVERAL[call.key]
    first = id(next(iter(places.values())))
    parts: dict[int, list[Any]] = {}
    for entry in several.entries(call.message):
        name = several.group_of(entry)
        parts.setdefault(id(places[state_partition(name)]) if name else first, []).append(entry)
        await call.work.step(len(name or ""))
    return [several.about(call, part) for part in parts.values()]


async def _joined(call: Call, parts: Sequence[Answer | None]) -> bytes:
    """The answers in one, in the order of the request."""
    return await replied(call, await SEVERAL[call.key].joined(call, await answers_of(call, parts)))


# Refusals


async def _whole(call: Call, code: ErrorCode, reason: str) -> Any:
    return registry.message(f"{registry.API_KEYS[call.key]}Response")(error_code=code, error_message=reason or None)


async def _session(call: Call, _code: ErrorCode, reason: str) -> Any:
    return await _whole(call, ErrorCode.SHARE_SESSION_NOT_FOUND, reason)


async def _described(call: Call, code: ErrorCode, reason: str) -> Any:
    answer = registry.message("ShareGroupDescribeResponse")

    def entry(group_id: str) -> Any:
        return answer.DescribedGroup(group_id=group_id, error_code=code, error_message=reason or None, members=[])

    return answer(groups=await call.work.map(entry, dict.fromkeys(call.message.group_ids)))


async def _described_offsets(call: Call, code: ErrorCode, reason: str) -> Any:
    answer = registry.message("DescribeShareGroupOffsetsResponse")

    def entry(group: Any) -> Any:
        return answer.DescribeShareGroupOffsetsResponseGroup(
            group_id=group.group_id, topics=[], error_code=code, error_message=reason or None
        )

    return answer(groups=await call.work.map(entry, call.message.groups))


async def _deleted(call: Call, code: ErrorCode, _reason: str) -> Any:
    answer = registry.message("DeleteGroupsResponse")

    def entry(name: str) -> Any:
        return answer.DeletableGroupResult(group_id=name, error_code=code)

    return answer(results=await call.work.map(entry, dict.fromkeys(call.message.groups_names)))


async def _configured(call: Call, code: ErrorCode, reason: str) -> Any:
    """Every resource of the part: those that are no groups are not changed either."""
    answer = registry.message(f"{registry.API_KEYS[call.key]}Response")
    name, field = _CONFIG_RESULTS[call.key]

    def entry(resource: Any) -> Any:
        return getattr(answer, name)(
            error_code=code,
            error_message=reason or None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            **({"configs": []} if call.key == DESCRIBE_CONFIGS else {}),
        )

    return answer(**{field: await call.work.map(entry, call.message.resources)})


_CONFIG_RESULTS = {
    DESCRIBE_CONFIGS: ("DescribeConfigsResult", "results"),
    ALTER_CONFIGS: ("AlterConfigsResourceResponse", "responses"),
    INCREMENTAL_ALTER_CONFIGS: ("AlterConfigsResourceResponse", "responses"),
}
"""(name of an entry, field of the response)"""

_REFUSALS: dict[int, Refuse] = {
    DESCRIBE_CONFIGS: _configured,
    ALTER_CONFIGS: _configured,
    DELETE_GROUPS: _deleted,
    HEARTBEAT: _whole,
    DESCRIBE: _described,
    FETCH: _session,
    ACKNOWLEDGE: _session,
    DESCRIBE_OFFSETS: _described_offsets,
    ALTER_OFFSETS: _whole,
    DELETE_OFFSETS: _whole,
}
_REFUSALS[INCREMENTAL_ALTER_CONFIGS] = _configured
