"""Routing of requests about groups to the owner of their state: this proxy, through the gate, or another one.

Rules: durable/README.md 26, fleet/README.md 11 and 12. Requests of tools wait longer while the state is being loaded:
the Java admin client retries IncrementalAlterConfigs, AlterShareGroupOffsets, DeleteGroups and the like neither on 14
nor on 15.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

from kafka_share_proxy.durable.gate import StateGate
from kafka_share_proxy.fleet.group_owners import Fleet, Peer, PeerLost
from kafka_share_proxy.forwarding.dispatch.declared_api import HOLD_MAX_S, DeclaredApi
from kafka_share_proxy.forwarding.dispatch.routes import Handler
from kafka_share_proxy.forwarding.dispatch.split_requests import Splits
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import decoded, framed
from kafka_share_proxy.loop.interfaces import Timers
from kafka_share_proxy.loop.promise import Promise, Task, all_of
from kafka_share_proxy.loop.waiting import first_until
from kafka_share_proxy.wire.codec.frames import ResponseFrame
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode

CHECK_AGAIN_S = 0.1
"""Seconds before a request is sent again to a proxy that is not the owner."""


class _Served(Enum):
    """Places of a partition that is not served by another proxy."""

    HERE = auto()
    """This proxy owns it, or no owner is known."""
    NOWHERE = auto()
    """Its owner cannot read it."""


class OwnedServices(Protocol):
    """Services of a feature that stores something about groups in a state with owners."""

    @property
    def feature(self) -> str:
        """Name of the feature on links (fleet/README.md rule 12)."""

    @property
    def gate(self) -> StateGate: ...

    @property
    def fleet(self) -> Fleet | None:
        """Other proxies. None if this proxy owns all partitions or none."""

    @property
    def timers(self) -> Timers: ...

    @property
    def state_wait_s(self) -> float:
        """Seconds for which tools wait while the state is being loaded."""


class OwnedApi(NamedTuple):
    """API that the owner of the groups serves (`Needs.OWNER`)."""

    api: DeclaredApi[Any]
    handler: Handler
    services: OwnedServices

    async def handle(self, call: Call[Any]) -> ResponseFrame | Message | None:
        """Serve a request of a client of this proxy, here or at the owner."""
        services = self.services
        partitions = await self.partitions_of(call)
        if partitions is None:
            text = f"More than {self.api.groups_max} groups in one request."
            return await self._refused(call, ErrorCode.INVALID_REQUEST, text)
        if services.gate.lets_in(partitions) and not services.gate.refused:
            return await self._inside(call, partitions)
        if not self.api.is_repeated and services.gate.standby:
            return await self._refused(call, ErrorCode.POLICY_VIOLATION, services.gate.standby)
        return await self._dispatch(call, services.timers.now())

    async def handle_peers(self, call: Call[Any]) -> ResponseFrame | None:
        """Serve a request of another proxy. Return None if this proxy is not the owner."""
        gate = self.services.gate
        partitions = await self.partitions_of(call)
        if partitions is None or not gate.lets_in(partitions):
            gate.request(partitions or ())
            return None
        if not gate.refused.keys().isdisjoint(partitions):
            return await framed(call, await self._refusal(call, partitions))
        return await framed(call, await self._inside(call, partitions))

    async def partitions_of(self, call: Call[Any]) -> tuple[int, ...] | None:
        """Return the state partitions of the groups, or None if the request has too many groups."""
        splits, groups_max, partition_of = self.api.splits, self.api.groups_max, self.services.gate.partition_of
        if splits is None:
            group_id = call.message.group_id
            return (partition_of(group_id),) if group_id else ()
        names = splits.groups(call.message)
        if groups_max is not None and len(names) > groups_max:
            return None
        partitions: dict[int, None] = {}
        for name in filter(None, names):
            partitions[partition_of(name)] = None
            await call.work.pause()
        return tuple(partitions)

    async def _dispatch(self, call: Call[Any], began: float) -> ResponseFrame | Message | None:
        services = self.services
        while True:
            partitions = await self.partitions_of(call) or ()
            owners = {partition: self._owner_of(partition) for partition in partitions}
            if len(set(map(id, owners.values()))) > 1:
                parts = await self._cut(call, owners)
                return await self._joined(call, await all_of(self._dispatch(part, began) for part in parts))
            response = await self._attempt(call, partitions, next(iter(owners.values()), _Served.HERE))
            if response is not None:
                return response
            now = services.timers.now()
            deadline = began + self._wait_s(partitions)
            if now >= deadline:
                return await self._refusal(call, partitions)
            is_elsewhere = owners[partitions[0]] is not _Served.HERE
            services.gate.request(partitions)
            await gate_change(services, min(deadline, now + CHECK_AGAIN_S) if is_elsewhere else deadline)

    def _wait_s(self, partitions: Collection[int]) -> float:
        """Return the seconds for which a request waits for its partitions."""
        services = self.services
        is_loading = any(partition in services.gate.loading for partition in partitions)
        if is_loading and not self.api.is_repeated:
            return services.state_wait_s
        return self.api.hold_s

    async def _attempt(
        self, call: Call[Any], partitions: Sequence[int], owner: Peer | _Served
    ) -> ResponseFrame | Message | None:
        """Return the response of the owner, or None if the request should be tried again."""
        if owner is _Served.NOWHERE:
            return await self._refusal(call, partitions)
        if owner is _Served.HERE:
            return await self._inside(call, partitions) if self.services.gate.lets_in(partitions) else None
        refused = None
        if self.api.before_move is not None:
            self.api.before_move(call.connection, self.services)
            refused = owner.take_client(call)
        if refused is not None:
            await refused
        response = owner.serve(call, self.services.feature)
        try:
            return await response
        except PeerLost as error:
            return await self._interrupted(call, str(error))
        finally:
            owner.give_up(response)

    async def _inside(self, call: Call[Any], partitions: Sequence[int]) -> ResponseFrame | Message | None:
        """Run the handler. Its response counts only if no door was closed meanwhile and the lease holds.

        An ended lease may return: one crashed broker delays both an append and the group of proxies.
        """
        services, gate, ended = self.services, self.services.gate, False
        done: Promise[None] = Promise()
        task: Task[ResponseFrame | Message | None] = Task(self.handler(call), lambda _: done.set(None))

        def end() -> None:
            nonlocal ended
            ended = True
            task.cancel()
            done.set(None)
            gate.wake()  # the code below may be waiting for the lease

        task.start()
        if not (task.finished and _holds(services, partitions)):
            gate.enter(partitions, end)
            try:
                await done
                deadline = services.timers.now() + HOLD_MAX_S
                while not (ended or _holds(services, partitions)) and services.timers.now() < deadline:
                    await gate_change(services, deadline)
            finally:
                gate.leave(partitions, end)
                task.cancel()
        if task.error is not None:
            raise task.error
        if ended or not _holds(services, partitions):
            return await self._interrupted(call, gate.why_not(partitions)[1])
        return task.value

    def _owner_of(self, partition: int) -> Peer | _Served:
        services = self.services
        if partition in services.gate.refused:
            return _Served.NOWHERE
        if services.fleet is None or services.gate.lets_in((partition,)):
            return _Served.HERE
        return services.fleet.owner(partition) or _Served.HERE

    async def _cut(self, call: Call[Any], owners: Mapping[int, object]) -> list[Call[Any]]:
        """Split the call by owner. Entries without a group go with the first."""
        splits, partition_of = self._splits, self.services.gate.partition_of
        first = id(next(iter(owners.values())))
        parts: dict[int, list[Any]] = {}
        for entry in splits.entries(call.message):
            name = splits.group_of(entry)
            parts.setdefault(id(owners[partition_of(name)]) if name else first, []).append(entry)
            await call.work.step(len(name or ""))
        return [splits.about(call, part) for part in parts.values()]

    async def _joined(self, call: Call[Any], parts: Sequence[ResponseFrame | Message | None]) -> Message:
        responses: list[Message] = [await decoded(call, part or b"") for part in parts]
        return await self._splits.joined(call, responses)

    @property
    def _splits(self) -> Splits:
        splits = self.api.splits
        assert splits is not None  # noqa: S101  # only what lists groups has several owners
        return splits

    async def _refusal(self, call: Call[Any], partitions: Iterable[int]) -> Message:
        return await self._refused(call, *self.services.gate.why_not(partitions))

    async def _interrupted(self, call: Call[Any], reason: str) -> Message:
        response = await self.api.interrupted(call, reason) if self.api.interrupted is not None else None
        return response or await self._refused(call, ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)

    async def _refused(self, call: Call[Any], code: ErrorCode, reason: str) -> Message:
        respond_unavailable = self.api.respond_unavailable
        assert respond_unavailable is not None  # noqa: S101  # of our own declarations, each held to it by a test
        return await respond_unavailable(call, code, reason)


def _holds(services: OwnedServices, partitions: Sequence[int]) -> bool:
    """Return True if the lease holds, or the request depends on no partition."""
    return not partitions or services.gate.lease()


async def gate_change(services: OwnedServices, deadline: float) -> None:
    """Wait until the gate has changed, at most until `deadline` (time of the timers)."""
    changed = services.gate.wait()
    try:
        await first_until(services.timers, deadline, changed)
    finally:
        services.gate.forget(changed)
