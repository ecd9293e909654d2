"""Share state in the memory of its owner: a coordinator filled from the topic, and emptied of what others own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import trio

from proxy.sharegroups import state_records
from proxy.sharegroups.model.coordinator import ShareCoordinator

FORGOTTEN_AT_ONCE = 100
"""Groups forgotten in one go; then others get their turn."""


class HeldShareState:
    """See described_state.HeldState."""

    def __init__(self, coordinator: ShareCoordinator) -> None:
        self._coordinator = coordinator

    async def load(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """See described_state.HeldState. Share partitions are only looked at (`state_records.load`)."""
        state_records.load(self._coordinator, records)
        await trio.lowlevel.checkpoint()

    async def forget(self, partitions: Collection[int]) -> None:
        """See described_state.HeldState."""
        coordinator, gone = self._coordinator, set(partitions)
        if gone.issuperset(state_records.SHARE_STATE.all):
            coordinator.clear()
            return
        for count, group_id in enumerate(state_records.groups_in(coordinator, gone)):
            coordinator.remove_group(group_id)
            coordinator.store_settings(group_id, {})
            if count % FORGOTTEN_AT_ONCE == FORGOTTEN_AT_ONCE - 1:
                await trio.lowlevel.checkpoint()

    def limit_records(self, message_bytes: int) -> None:
        """See described_state.HeldState."""
        self._coordinator.bound_records(message_bytes)

    def figures(self) -> Mapping[str, int]:
        """See described_state.HeldState."""
        return {"groups": len(self._coordinator.groups), "share_partitions": self._coordinator.resting}
