"""Take-back of a share group from the brokers (sharegroups/README.md rules 100-104).

How it works: the brokers keep the settled records and the delivery counts, but do not list their locks. Therefore the
group's requests are followed for as long as an earlier lock can last, and only then are new records held back until
nothing is locked. The state is read at the brokers' share coordinator and stored here in one append, which moves the
group. Until then nothing is changed at the brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafka_share_proxy.loop.waiting import wait_until
from kafka_share_proxy.sharegroups.apis.group_configs import stored_value
from kafka_share_proxy.sharegroups.followed_everywhere import FollowedEverywhere
from kafka_share_proxy.sharegroups.followed_group import STOPPED_S_MAX, FollowedState
from kafka_share_proxy.sharegroups.group_moves import (
    CHECK_EVERY_S,
    MOVING,
    OBSERVING,
    TAKEN_BACK,
    Move,
    Window,
    names_of,
    some,
)
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.model.settings import (
    GROUP_CONFIGS_BY_NAME,
    HEARTBEAT_INTERVAL,
    LOCK_DURATION,
    OFFSET_RESET,
    check_stored,
)
from kafka_share_proxy.sharegroups.model.snapshot import ARCHIVING, SNAPSHOT_BYTES_MAX, ShareSnapshot
from kafka_share_proxy.sharegroups.native_group import DescribedGroup, MoveRefused, NativePartition, new_snapshot
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.sharegroups.state.group_changes import succeeded
from kafka_share_proxy.sharegroups.state.state_records import StateKey, group_value
from kafka_share_proxy.wire.errors import ProxyError
from kafka_share_proxy.wire.values import TopicIdPartition

UNSEEN_FETCH_S = 5.0
"""Seconds after which no fetch that was forwarded before the observation is in flight. Clients wait for 0.5 s by
default.
"""
HEARTBEATS_SEEN = 2
"""Number of heartbeat intervals within which each member must be seen here."""
EXPIRY_WRITE_S = 0.5
"""Seconds for a broker to store that the last lock expired."""
IN_FLIGHT_MAX_S = 10.0
"""Maximum seconds that acknowledgements in flight are awaited while requests are stopped."""
STORE_MARGIN_S = 5.0
"""Seconds before the end of the stop at which the append must begin."""
OBSERVE_EVERY_S = 1.0
"""Seconds between two queries of other proxies while requests are followed."""


class _GroupAtBrokers(NamedTuple):
    """Members of a group that the brokers serve, its lock duration and its heartbeat interval."""

    members: frozenset[str]
    lock_s: float
    heartbeat_s: float


class TakeBack(Move):
    """One take-back of one group that the brokers serve."""

    done, kind = TAKEN_BACK, "taken_back"

    def __init__(self, services: ShareServices, group_id: str, *, wait_s: float, force: bool) -> None:
        super().__init__(services, group_id, wait_s=wait_s, force=force)
        self._followed: FollowedEverywhere | None = None
        self._settings: dict[str, str] = {}
        self._ends: dict[TopicIdPartition, int] = {}
        """Ends of the logs before new records were held back."""

    async def _move(self) -> None:
        group = await self._check()
        if group.members:
            followed = self._followed = FollowedEverywhere(self._services, self._group_id, group.lock_s)
            await followed.begin()
            await self._observe(followed, max(group.lock_s + UNSEEN_FETCH_S, HEARTBEATS_SEEN * group.heartbeat_s))
        self._ends = await self._native.ends(await self._native.partitions())
        if self._followed is not None:
            await self._close(self._followed)
            await self._followed.stop()
        await self._switch()

    def _end(self) -> None:
        if self._followed is not None:
            self._followed.end()

    # Steps

    async def _check(self) -> _GroupAtBrokers:
        """Refuse what cannot be done here, before anything changes. Return the group as it is at the brokers."""
        described = await self._native.described()
        own, in_force = await self._native.settings()
        self.left_out = sorted(name for name in own if name not in GROUP_CONFIGS_BY_NAME)
        if self.left_out and not self._force:
            raise MoveRefused(f"the proxy does not have {', '.join(self.left_out)}: unset them, or use --force")
        self._settings = {name: value for name, value in own.items() if name in GROUP_CONFIGS_BY_NAME}
        mistake = check_stored(self._settings, self._services.coordinator.limits)
        if mistake is not None:
            raise MoveRefused(f"the settings of the group are not allowed here (share_groups.broker): {mistake}")
        await self._native.snapshots(await self._native.partitions())
        return _GroupAtBrokers(
            described.members, int(in_force[LOCK_DURATION]) / 1000, int(in_force[HEARTBEAT_INTERVAL]) / 1000
        )

    async def _observe(self, followed: FollowedEverywhere, seconds: float) -> None:
        """Follow the requests until every lock is known, and every member was seen."""
        self.phase, timers = OBSERVING, self._services.timers
        deadline = timers.now() + seconds
        while timers.now() < deadline:
            await wait_until(timers, min(timers.now() + OBSERVE_EVERY_S, deadline))
            state = await followed.state()
        unseen = (await self._native.described()).members - state.members
        if unseen:
            where = "this proxy" if self._services.fleet is None else "a proxy of this fleet"
            raise MoveRefused(
                f"members are not connected to {where}: {some(sorted(unseen))}; let them use it, or stop them"
            )

    async def _close(self, followed: FollowedEverywhere) -> None:
        """Hold new records back until nothing is locked at the brokers."""
        self._hold_back()
        await followed.hold_back()
        timers = self._services.timers
        deadline, state = timers.now() + self._wait_s, await followed.state()
        while (state.locks or state.requests) and timers.now() < deadline:
            await wait_until(timers, timers.now() + CHECK_EVERY_S)
            state = await followed.state()
        if state.has_expired:
            await wait_until(timers, timers.now() + EXPIRY_WRITE_S)
        if state.trouble:
            raise MoveRefused(f"the locks of the group are not known: {state.trouble}")
        windows = self._locked(state, await self._native.partitions())
        if windows and not self._force:
            raise MoveRefused(
                f"not settled within {self._wait_s:g} s: {names_of(windows)}; wait longer, or use --force to have them "
                "delivered again"
            )
        self.delivered_again = windows

    async def _switch(self) -> None:
        self.phase = MOVING
        state = await self._none_in_flight()
        partitions, described = await self._native.partitions(), await self._native.described()
        if state is not None and (unseen := described.members - state.members):
            raise MoveRefused(f"members joined elsewhere meanwhile: {some(sorted(unseen))}; try again")
        snapshots = await self._native.snapshots(partitions)
        if any(batch[2] == ARCHIVING for each in snapshots.values() for batch in each.batches):
            raise MoveRefused("the brokers are still writing dead letters of the group; try again")
        if self._settings.get(OFFSET_RESET, "latest").strip() == "latest":
            # Where no delivery has ended, no start is stored. It is not after a record that is locked or new.
            locked = {(each["topic"], each["partition"]): int(each["start_offset"]) for each in self.delivered_again}
            for topic, key in partitions:
                if key in self._ends and key not in snapshots:
                    end = self._ends[key]
                    snapshots[key] = new_snapshot(min(end, locked.get((topic, key.partition), end)))
        if self._followed is not None:
            await self._followed.state()  # also that no proxy has joined or was restarted
            if self._followed.stopped_s() > STOPPED_S_MAX - STORE_MARGIN_S:
                raise MoveRefused("the brokers took too long to describe the group; try again")
        await self._store(described, snapshots)
        self.partitions = len(partitions)
        await self._remove(described)

    async def _none_in_flight(self) -> FollowedState | None:
        """Wait until no request is in flight. None without members."""
        if self._followed is None:
            return None
        timers = self._services.timers
        deadline = timers.now() + IN_FLIGHT_MAX_S
        while (state := await self._followed.state()).requests:
            if timers.now() >= deadline:
                raise MoveRefused("the brokers do not respond to acknowledgements; try again")
            await wait_until(timers, timers.now() + CHECK_EVERY_S)
        return state

    async def _store(self, described: DescribedGroup, snapshots: dict[TopicIdPartition, ShareSnapshot]) -> None:
        """Store the group here. From that moment it is served here."""
        services, group_id, settings = self._services, self._group_id, self._settings
        if services.coordinator.group(group_id) is not None or not services.gate.lets_in(
            (services.gate.partition_of(group_id),)
        ):
            raise MoveRefused("the share state is not served by this proxy at present; try again")
        values = {ShareKey(group_id, *key): snapshot.encode() for key, snapshot in snapshots.items()}
        if any(len(value) > SNAPSHOT_BYTES_MAX for value in values.values()):
            raise MoveRefused(f"the state of a share partition has more than {SNAPSHOT_BYTES_MAX} bytes; try again")
        stored = services.writes.put(
            [
                (StateKey("group", group_id), group_value(described.epoch)),
                (StateKey("settings", group_id), stored_value(settings)),
                *((StateKey("partition", *key), value) for key, value in values.items()),
            ]
        )

        def hold() -> None:
            if succeeded(stored):
                services.coordinator.hold_back(group_id, None)  # since it was handed over
                services.coordinator.store_settings(group_id, settings)
                for key, value in values.items():
                    services.coordinator.rest(key, value)
                group = services.coordinator.add_group(group_id)
                group.epoch = group.stored_epoch = described.epoch

        services.writes.call_after(stored, hold)
        await stored

    async def _remove(self, described: DescribedGroup) -> None:
        """Remove the group at the brokers. Its members join here."""
        if self._followed is not None:
            self._followed.end()
        try:
            await self._native.remove(described.members, self._settings)
        except ProxyError as error:
            self.remark = (
                f"the brokers still have a group {self._group_id}, without effect; remove it there with "
                f"kafka-share-groups.sh --delete ({error})"
            )

    def _locked(self, state: FollowedState, partitions: Sequence[NativePartition]) -> list[Window]:
        names = {each.key: each.topic for each in partitions}
        return [
            {"topic": names.get(key, "?"), "partition": key.partition, "start_offset": first, "end_offset": last}
            for key, first, last in state.locks
        ]
