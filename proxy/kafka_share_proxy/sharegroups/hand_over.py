"""Hand-over of a share group from here to the brokers (sharegroups/README.md rules 95-99).

How it works: until the stored state is deleted, in one append, the group is served here; from then on its requests are
forwarded. All steps before may be repeated: a proxy that ends meanwhile leaves the group where it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_share_proxy.loop.waiting import wait_until
from kafka_share_proxy.sharegroups.apis.offset_requests import not_starting
from kafka_share_proxy.sharegroups.group_moves import (
    CHECK_EVERY_S,
    HANDED_OVER,
    MOVING,
    Move,
    Window,
    names_of,
)
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.model.group import ShareGroup
from kafka_share_proxy.sharegroups.model.partition import Transition
from kafka_share_proxy.sharegroups.model.settings import NOTHING_ACQUIRED, WINDOW_CLOSED, without_counterpart
from kafka_share_proxy.sharegroups.native_group import MoveRefused
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.sharegroups.state.group_changes import succeeded
from kafka_share_proxy.sharegroups.state.state_records import StateKey
from kafka_share_proxy.wire.errors import ErrorCode


class HandOver(Move):
    """One hand-over of one group that is held here."""

    done, kind = HANDED_OVER, "handed_over"

    def __init__(self, services: ShareServices, group: ShareGroup, *, wait_s: float, force: bool) -> None:
        super().__init__(services, group.group_id, wait_s=wait_s, force=force)
        self._group = group
        self._names: dict[bytes, str] = {}

    async def _move(self) -> None:
        await self._check()
        await self._close()
        await self._switch()

    def _end(self) -> None:
        services, self._group.deleting = self._services, False
        if self.phase != self.done:  # requests that arrived before the end must acquire nothing either
            services.coordinator.hold_back(self._group_id, None)
        for key in services.coordinator.keys_of(self._group_id):
            services.reads.wake(key)

    # Steps

    async def _check(self) -> None:
        """Refuse what the brokers cannot do, before anything changes."""
        stored = self._services.coordinator.stored_settings(self._group_id)
        self.left_out = without_counterpart(stored)
        if self.left_out and not self._force:
            raise MoveRefused(
                f"the brokers do not have {', '.join(self.left_out)}: unset them, or use --force to go without"
            )
        topics = {key.topic_id for key in self._services.coordinator.keys_of(self._group_id)}
        self._names = await self._native.names(topics)
        await self._native.set_settings(self._settings(), validate_only=True)

    async def _close(self) -> None:
        """Hold new records back until everything in flight is settled."""
        services = self._services
        self._hold_back()
        deadline = services.timers.now() + self._wait_s
        services.coordinator.hold_back(self._group_id, WINDOW_CLOSED)
        while (windows := self._windows()) and services.timers.now() < deadline:
            await wait_until(services.timers, services.timers.now() + CHECK_EVERY_S)
            self._still_held()
        if windows and not self._force:
            raise MoveRefused(
                f"not settled within {self._wait_s:g} s: {names_of(windows)}; wait longer, or use --force to have them "
                "delivered again"
            )

    async def _switch(self) -> None:
        self.phase, services = MOVING, self._services
        self._group.deleting = True  # nothing joins, and no share partition starts
        services.coordinator.hold_back(self._group_id, NOTHING_ACQUIRED)
        while starting := [key for key in services.reads.starting if key.group_id == self._group_id]:
            await not_starting(services, starting)
        self._still_held()
        await self._release_all()
        self._still_held()
        settings, windows, offsets = self._settings(), self._windows(), self._start_offsets()
        if windows and not self._force:
            raise MoveRefused(f"changed meanwhile: {names_of(windows)}; try again")
        self.delivered_again = windows
        await self._native.set_settings(settings, validate_only=False)
        await self._native.begin_at(offsets)
        self.partitions = sum(map(len, offsets.values()))
        self._still_held()
        if settings != self._settings() or self._group_id in services.changes.settings:
            raise MoveRefused("the settings of the group were changed meanwhile; try again")
        await self._delete()

    async def _release_all(self) -> None:
        """End all locks, and wait until no change of a share partition of the group waits to be written."""
        services, settings = self._services, self._services.coordinator.settings(self._group_id)
        released = [
            (key, transition)
            for key, share in services.coordinator.loaded_of(self._group_id)
            if (transition := share.partition.decide_release_all(settings)) is not None
        ]
        # A later change of a share partition is settled after all its earlier ones.
        last = [(key, Transition((), ())) for key, _ in services.coordinator.loaded_of(self._group_id)]
        for written in (services.writes.write(released), services.writes.write(last)):
            for code in (await written).values():
                if code != ErrorCode.NONE:
                    raise MoveRefused(f"the share state cannot be stored here ({code.name}); try again")

    async def _delete(self) -> None:
        """Delete the group here. From the moment it is stored the brokers serve it."""
        services, group_id = self._services, self._group_id
        coordinator = services.coordinator
        keys = [StateKey("partition", *key) for key in coordinator.keys_of(group_id)]
        deleted = [StateKey("group", group_id), StateKey("settings", group_id), *keys]
        stored = services.writes.put([(key, None) for key in deleted])

        def forget() -> None:
            if succeeded(stored):
                coordinator.remove_group(group_id)
                coordinator.store_settings(group_id, {})

        services.writes.call_after(stored, forget)
        await stored

    # The group

    def _still_held(self) -> None:
        if self._services.coordinator.group(self._group_id) is not self._group:
            raise MoveRefused("the group was deleted, or its state moved to another proxy, meanwhile")

    def _settings(self) -> dict[str, str]:
        stored = self._services.coordinator.stored_settings(self._group_id)
        return {name: value for name, value in stored.items() if name not in without_counterpart(stored, all_=True)}

    def _keys(self) -> Sequence[ShareKey]:
        """Share partitions of topics that exist."""
        return sorted(key for key in self._services.coordinator.keys_of(self._group_id) if key.topic_id in self._names)

    def _windows(self) -> list[Window]:
        windows = []
        for key in self._keys():
            share = self._services.coordinator.share(key)
            if share is not None and share.partition.end_offset >= share.partition.start_offset:
                windows.append(
                    {
                        "topic": self._names[key.topic_id],
                        "partition": key.partition,
                        "start_offset": share.partition.start_offset,
                        "end_offset": share.partition.end_offset,
                    }
                )
        return windows

    def _start_offsets(self) -> dict[str, dict[int, int]]:
        offsets: dict[str, dict[int, int]] = {}
        for key in self._keys():
            share = self._services.coordinator.share(key)
            if share is not None:
                offsets.setdefault(self._names[key.topic_id], {})[key.partition] = share.partition.start_offset
        if not offsets:
            raise MoveRefused("all topics of the group were deleted: delete it instead")
        return offsets
