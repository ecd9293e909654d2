"""A group that is taken back, followed at this proxy and at all others of its fleet (sharegroups/README.md rule 100).

How it works: the proxy that takes the group back sends each of them the present step, several times a second. The first
command begins the following there, and each response contains what was seen. Without commands for LEASE_S a proxy
forwards the requests again as before. After a stop it queries the owner first which side serves the group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from itertools import chain
from math import inf
from typing import Any

from kafka_share_proxy.fleet.group_owners import CommandResult, Peer
from kafka_share_proxy.loop.waiting import settled_by
from kafka_share_proxy.sharegroups.followed_group import FollowedGroup, FollowedState
from kafka_share_proxy.sharegroups.native_group import MoveRefused
from kafka_share_proxy.sharegroups.services import FEATURE, ShareServices
from kafka_share_proxy.wire.values import TopicIdPartition

COMMAND = "FOLLOW"
"""First word of the command, followed by the group, the step and the duration of a lock in seconds."""
FOLLOW, HOLD_BACK, STOP, END = "follow", "hold-back", "stop", "end"
_STEPS = (FOLLOW, HOLD_BACK, STOP, END)
LEASE_S = 10.0
"""Seconds after which a proxy that gets no command stops following. Longer than a lost link is noticed (3 s)."""
RESPONSE_WAIT_S = 5.0
"""Maximum seconds for the response to a command."""


class FollowedEverywhere:
    """One group, followed at all proxies. Methods raise MoveRefused or PeerLost."""

    def __init__(self, services: ShareServices, group_id: str, lock_s: float) -> None:
        self._services, self._group_id, self._lock_s = services, group_id, lock_s
        self._own_group = FollowedGroup(services, lock_s)
        self._step = FOLLOW
        self._addresses: frozenset[str] | None = None
        """Other proxies. None: they do not follow yet."""
        self._stopped_at = inf

    async def begin(self) -> None:
        self._services.followed[self._group_id] = self._own_group
        await self.state()

    async def hold_back(self) -> None:
        """Acquire no new records from now on."""
        await self._begin_step(HOLD_BACK)

    async def stop(self) -> None:
        """Let requests wait from now on."""
        self._stopped_at = self._services.timers.now()
        await self._begin_step(STOP)

    async def _begin_step(self, step: str) -> None:
        self._step = step
        await self.state()

    def stopped_s(self) -> float:
        """Return how long requests wait. Negative before `stop`."""
        return self._services.timers.now() - self._stopped_at

    async def state(self) -> FollowedState:
        """Send the present step, and return the state at all proxies."""
        timers, peers = self._services.timers, self._peers()
        is_first, self._addresses = self._addresses is None, frozenset(peers)
        _begin_step(self._services, self._group_id, self._own_group, self._step)
        results = {address: peer.command(FEATURE, self._words(self._step)) for address, peer in peers.items()}
        states, deadline = [self._own_group.state()], timers.now() + RESPONSE_WAIT_S
        for address, result in results.items():
            if not await settled_by(timers, deadline, result):
                raise MoveRefused(f"the proxy {address} of the fleet does not respond; try again")
            status, body = result.result()
            if status != HTTPStatus.OK:
                raise MoveRefused(f"the proxy {address} of the fleet cannot follow a group; upgrade it")
            if body["begun"] and not is_first:
                raise MoveRefused(f"the proxy {address} of the fleet was restarted meanwhile; try again")
            states.append(_state_in(body))
        return _together(states)

    def end(self) -> None:
        """Serve requests where the group is now."""
        services = self._services
        if services.followed.get(self._group_id) is self._own_group:
            del services.followed[self._group_id]
            self._own_group.go_on()
            for peer in ({} if services.fleet is None else services.fleet.members).values():
                if peer is not None:
                    peer.command(FEATURE, self._words(END))

    def _words(self, step: str) -> list[str]:
        return [COMMAND, self._group_id, step, str(self._lock_s)]

    def _peers(self) -> dict[str, Peer]:
        """Return all other proxies, which may not have changed."""
        members = {} if self._services.fleet is None else self._services.fleet.members
        peers = {address: peer for address, peer in members.items() if peer is not None}
        if len(peers) < len(members) or (self._addresses is not None and peers.keys() != self._addresses):
            raise MoveRefused("the fleet has changed, or is not whole; try again when it is")
        return peers


def follow(services: ShareServices, words: Sequence[str]) -> CommandResult | None:
    """Serve the command of the proxy that takes a group back. None if it is not known here."""
    if len(words) < len((COMMAND, "group", FOLLOW, "lock")) or words[0] != COMMAND or words[2] not in _STEPS:
        return None
    _, group_id, step, lock_s, *_ = words
    followed = current(services, group_id)
    if step == END:
        services.followed.pop(group_id, None)
        if followed is not None:
            followed.go_on()
        return CommandResult(HTTPStatus.OK, {})
    is_new = followed is None
    if followed is None:
        followed = services.followed[group_id] = FollowedGroup(services, float(lock_s))
    followed.lease_until = services.timers.now() + LEASE_S
    _begin_step(services, group_id, followed, step)
    return CommandResult(HTTPStatus.OK, {"begun": is_new, **_body(followed.state())})


def current(services: ShareServices, group_id: str) -> FollowedGroup | None:
    """Return the group if it is followed here."""
    followed = services.followed.get(group_id)
    if followed is not None and followed.lease_until < services.timers.now():
        del services.followed[group_id]
        return None
    return followed


def _begin_step(services: ShareServices, group_id: str, followed: FollowedGroup, step: str) -> None:
    followed.holds_back = step != FOLLOW
    if step == STOP:
        services.at_brokers.pop(group_id, None)
        followed.stop()


def _body(state: FollowedState) -> dict[str, Any]:
    locks = [
        [topic_partition.topic_id.hex(), topic_partition.partition, first, last]
        for topic_partition, first, last in state.locks
    ]
    return state._asdict() | {"members": sorted(state.members), "locks": locks}


def _state_in(body: Mapping[str, Any]) -> FollowedState:
    return FollowedState(
        members=frozenset(body["members"]),
        locks=[
            (TopicIdPartition(bytes.fromhex(topic_id), partition), first, last)
            for topic_id, partition, first, last in body["locks"]
        ],
        requests=body["requests"],
        has_expired=body["has_expired"],
        trouble=body["trouble"],
    )


def _together(states: Sequence[FollowedState]) -> FollowedState:
    """Join the states at several proxies. A member may have used more than one of them."""
    bounds: dict[TopicIdPartition, tuple[int, int]] = {}
    for topic_partition, first, last in chain.from_iterable(state.locks for state in states):
        lowest, highest = bounds.get(topic_partition, (first, last))
        bounds[topic_partition] = min(lowest, first), max(highest, last)
    return FollowedState(
        members=frozenset().union(*(state.members for state in states)),
        locks=sorted((topic_partition, first, last) for topic_partition, (first, last) in bounds.items()),
        requests=sum(state.requests for state in states),
        has_expired=any(state.has_expired for state in states),
        trouble=next((state.trouble for state in states if state.trouble), ""),
    )
