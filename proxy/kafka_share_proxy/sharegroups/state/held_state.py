"""Share state in the memory of its owner: loading from the topic, and removal of groups that another proxy owns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import trio

from kafka_share_proxy.sharegroups.apis.group_configs import stored_value
from kafka_share_proxy.sharegroups.model.coordinator import ShareCoordinator
from kafka_share_proxy.sharegroups.state import state_records
from kafka_share_proxy.sharegroups.state.state_records import StateKey

FORGOTTEN_AT_ONCE = 100
"""Number of groups removed, or searched for dead letters to write, in one step before other tasks run."""


class HeldShareState:
    """See described_state.HeldState."""

    def __init__(self, coordinator: ShareCoordinator) -> None:
        self._coordinator = coordinator

    async def load(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """See described_state.HeldState. Share partitions are not decoded (`state_records.load`)."""
        for count, group_id in enumerate(state_records.load(self._coordinator, records)):
            self._coordinator.load_dead_letters(group_id)
            if count % FORGOTTEN_AT_ONCE == FORGOTTEN_AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()

    async def forget(self, partitions: Collection[int]) -> None:
        coordinator, partitions_to_forget = self._coordinator, set(partitions)
        if partitions_to_forget.issuperset(state_records.SHARE_STATE.all):
            coordinator.clear()
            return
        for count, group_id in enumerate(state_records.groups_in(coordinator, partitions_to_forget)):
            coordinator.remove_group(group_id)
            coordinator.store_settings(group_id, {})
            if count % FORGOTTEN_AT_ONCE == FORGOTTEN_AT_ONCE - 1:
                await trio.lowlevel.checkpoint()

    def stored(self, partitions: Collection[int], time_ms: int) -> Iterator[tuple[StateKey, bytes]]:  # noqa: ARG002 - no value has a time
        coordinator = self._coordinator
        for group_id in state_records.groups_in(coordinator, frozenset(partitions)):
            group = coordinator.group(group_id)
            if group is not None:
                yield StateKey("group", group_id), state_records.group_value(group.stored_epoch)
            settings = stored_value(coordinator.stored_settings(group_id))
            if settings is not None:
                yield StateKey("settings", group_id), settings
            for key in coordinator.keys_of(group_id):
                value = coordinator.stored_share(key)
                if value is not None:
                    yield StateKey("partition", group_id, key.topic_id, key.partition), value

    def limit_records(self, message_bytes: int) -> None:
        self._coordinator.bound_records(message_bytes)

    def figures(self) -> Mapping[str, int]:
        return {"groups": len(self._coordinator.groups), "share_partitions": self._coordinator.resting}
