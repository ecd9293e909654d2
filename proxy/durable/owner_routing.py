"""Requests about groups on their way to whoever owns the groups' state: here, behind the gate, or at another proxy.

Theory of operation. What a request is about lies in one or several state partitions. All of them owned and open here:
the handler runs, which is the only case a proxy alone knows. Owned by another proxy: that one is asked. Several owners:
the request is cut into one for each, and the answers are put together. Owned by nobody at this moment (taken over,
loading, moved): it waits for a bounded time, looks again, and is refused in the end. Members come again by themselves;
tools do not (the Java admin client repeats IncrementalAlterConfigs, AlterShareGroupOffsets, DeleteGroups and their like
neither on 14 nor on 15), so theirs wait longer where the state is being loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from proxy.durable.gate import HOLD_MAX_S, StateGate
from proxy.fleet.group_owners import Fleet, Peer, PeerLost
from proxy.forwarding.ask_and_reply import decoded, framed
from proxy.forwarding.declared_api import DeclaredApi
from proxy.forwarding.interfaces import Call
from proxy.forwarding.routes import Handler
from proxy.forwarding.split_requests import Splits
from proxy.loop.interfaces import Timers
from proxy.loop.promise import Promise, Task, all_of
from proxy.loop.waiting import first_until
from proxy.wire.errors import ErrorCode
from proxy.wire.frames import Answer
from proxy.wire.messages import Message

LOOK_AGAIN_S = 0.1
"""A proxy that does not own what the table says it does is asked again after this, if nothing happens before."""


class OwnedServices(Protocol):
    """What a feature has that keeps something about groups in a state with owners."""

    @property
    def feature(self) -> str:
        """What links of the fleet call it (`fleet.carried`)."""

    @property
    def gate(self) -> StateGate:
        """Lets requests in while the state they need is loaded here."""

    @property
    def fleet(self) -> Fleet | None:
        """Other proxies that own groups; None where this one owns all or none."""

    @property
    def timers(self) -> Timers:
        """The clock, and calls at a time."""

    @property
    def state_wait_s(self) -> float:
        """A tool's request waits so long for state that is being loaded."""


@dataclass(frozen=True, slots=True)
class OwnedApi:
    """An API whose requests are answered by whoever owns the groups that they name (`Needs.OWNER`)."""

    api: DeclaredApi[Any]
    handler: Handler
    services: OwnedServices

    async def handle(self, call: Call[Any]) -> Answer | Message | None:
        """The handler, let in and out by the gate, or run by whoever owns what the request is about."""
        services = self.services
        partitions = await self.partitions_of(call)
        if partitions is None:
            text = f"More than {self.api.groups_max} groups in one request."
            return await self._refused(call, ErrorCode.INVALID_REQUEST, text)
        if services.gate.lets_in(partitions) and not services.gate.refused:
            return await self._inside(call, partitions)
        if not self.api.asks_again and services.gate.standby:
            return await self._refused(call, ErrorCode.POLICY_VIOLATION, services.gate.standby)
        return await self._dispatch(call, services.timers.now())

    async def handle_peers(self, call: Call[Any]) -> Answer | None:
        """A request that another proxy sent here as to the owner; None: this is not the owner."""
        gate = self.services.gate
        partitions = await self.partitions_of(call)
        if partitions is None or not gate.lets_in(partitions):
            return None
        if not gate.refused.keys().isdisjoint(partitions):
            return await framed(call, await self._refusal(call, partitions))
        return await framed(call, await self._inside(call, partitions))

    async def partitions_of(self, call: Call[Any]) -> tuple[int, ...] | None:
        """The state partitions of the groups that a request is about, each once; None where the groups are too many."""
        splits, most, partition_of = self.api.splits, self.api.groups_max, self.services.gate.partition_of
        if splits is None:
            group_id = call.message.group_id
            return (partition_of(group_id),) if group_id else ()
        names = splits.groups(call.message)
        if most is not None and len(names) > most:
            return None
        found: dict[int, None] = {}
        for name in filter(None, names):
            found[partition_of(name)] = None
            await call.work.pause()
        return tuple(found)

    async def _dispatch(self, call: Call[Any], began: float) -> Answer | Message | None:
        """Whoever it takes, until somebody has answered or the time is over; it began to wait then."""
        services = self.services
        while True:
            partitions = await self.partitions_of(call) or ()
            places = {partition: self._place(partition) for partition in partitions}
            if len(set(map(id, places.values()))) > 1:
                parts = await self._cut(call, places)
                return await self._joined(call, await all_of(self._dispatch(part, began) for part in parts))
            answer = await self._attempt(call, partitions, next(iter(places.values()), None))
            if answer is not None:
                return answer
            now = services.timers.now()
            deadline = began + self._wait_s(partitions)
            if now >= deadline:
                return await self._refusal(call, partitions)
            is_elsewhere = places[partitions[0]] is not None
            await gate_change(services, min(deadline, now + LOOK_AGAIN_S) if is_elsewhere else deadline)

    def _wait_s(self, partitions: Collection[int]) -> float:
        """How long the request may wait until somebody serves it."""
        services = self.services
        is_loading = any(partition in services.gate.loading for partition in partitions)
        return services.state_wait_s if is_loading and not self.api.asks_again else HOLD_MAX_S

    async def _attempt(
        self, call: Call[Any], partitions: Sequence[int], place: Peer | str | None
    ) -> Answer | Message | None:
        """The answer; None when it is to be tried again."""
        if isinstance(place, str):
            return await self._refusal(call, partitions)
        if place is None:
            return await self._inside(call, partitions) if self.services.gate.lets_in(partitions) else None
        answer = place.serve(call, self.services.feature)
        try:
            return await answer
        except PeerLost as error:
            return await self._interrupted(call, str(error))
        finally:
            place.give_up(answer)

    async def _inside(self, call: Call[Any], partitions: Sequence[int]) -> Answer | Message | None:
        """Run the handler; what it says counts only if no door was closed meanwhile and the lease holds.

        A lease that has ended is waited for: the group of proxies may have been away as long as the append was on its
        way (one broker crashed), and where the lease comes back behind an open door nobody else has been the owner.
        """
        services, gate, ended = self.services, self.services.gate, False
        done: Promise[None] = Promise()
        task: Task[Answer | Message | None] = Task(self.handler(call), lambda _: done.set(None))

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
                    await gate_change(services, deadline)
            finally:
                gate.leave(partitions, end)
                task.cancel()
        if task.error is not None:
            raise task.error
        if ended or not _holds(services, partitions):
            return await self._interrupted(call, gate.why_not(partitions)[1])
        return task.value

    def _place(self, partition: int) -> Peer | str | None:
        """The proxy to ask; None: this one, or nobody now; words, where it is served nowhere."""
        services = self.services
        if partition in services.gate.refused:
            return _UNREADABLE
        if services.fleet is None or services.gate.lets_in((partition,)):
            return None
        return services.fleet.owner(partition)

    async def _cut(self, call: Call[Any], places: Mapping[int, object]) -> list[Call[Any]]:
        """One call for each place; what is about no group goes with the first."""
        splits, partition_of = self._splits, self.services.gate.partition_of
        first = id(next(iter(places.values())))
        parts: dict[int, list[Any]] = {}
        for entry in splits.entries(call.message):
            name = splits.group_of(entry)
            parts.setdefault(id(places[partition_of(name)]) if name else first, []).append(entry)
            await call.work.step(len(name or ""))
        return [splits.about(call, part) for part in parts.values()]

    async def _joined(self, call: Call[Any], parts: Sequence[Answer | Message | None]) -> Message:
        """The answers in one, in the order of the request."""
        answers: list[Message] = [await decoded(call, part or b"") for part in parts]
        return await self._splits.joined(call, answers)

    @property
    def _splits(self) -> Splits:
        splits = self.api.splits
        assert splits is not None  # noqa: S101  # only what lists groups has several owners
        return splits

    async def _refusal(self, call: Call[Any], partitions: Iterable[int]) -> Message:
        return await self._refused(call, *self.services.gate.why_not(partitions))

    async def _interrupted(self, call: Call[Any], reason: str) -> Message:
        """The handler had begun: what it wanted to store may be stored or not."""
        told = await self.api.interrupted(call, reason) if self.api.interrupted is not None else None
        return told or await self._refused(call, ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)

    async def _refused(self, call: Call[Any], code: ErrorCode, reason: str) -> Message:
        away = self.api.away
        assert away is not None  # noqa: S101  # of our own declarations, each held to it by a test
        return await away(call, code, reason)


_UNREADABLE = "unreadable"


def _holds(services: OwnedServices, partitions: Sequence[int]) -> bool:
    """Whether what is said about these may be told, by the lease."""
    return not partitions or services.gate.lease()


async def gate_change(services: OwnedServices, deadline: float) -> None:
    """Wait until something about the gate or the lease has changed, or the deadline has passed."""
    changed = services.gate.wait()
    try:
        await first_until(services.timers, deadline, changed)
    finally:
        services.gate.forget(changed)
