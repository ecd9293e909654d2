"""Changes of share groups in progress, which continue without the request that started them.

An append may be stored although no request waits for it, because the client disconnected or received a retriable error.
The effects of a stored change therefore happen here and not in the handler. The next change of the same kind must not
overtake it: it waits, or its client receives a retriable error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from kafka_share_proxy.durable.interfaces import JournalRefused
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.sharegroups.model.coordinator import ShareCoordinator
from kafka_share_proxy.sharegroups.model.group import ShareGroup
from kafka_share_proxy.sharegroups.state.state_records import StateKey, group_value
from kafka_share_proxy.sharegroups.state.state_writes import ShareWrites
from kafka_share_proxy.wire.errors import ErrorCode

FIRST_EPOCH = 1

BEING_DELETED = "The group is being deleted."
"""Error message of COORDINATOR_NOT_AVAILABLE (15) while a deletion is being stored."""


@dataclass(slots=True)
class ShareChanges:
    """Changes of groups and their settings."""

    coordinator: ShareCoordinator
    writes: ShareWrites
    settings: dict[str, Promise[None]] = field(default_factory=dict)
    deletions: dict[str, Promise[ErrorCode]] = field(default_factory=dict)

    def store_settings(
        self, group_id: str, values: Mapping[str, str], encoded: bytes | None, on_stored: Callable[[], None]
    ) -> Promise[None]:
        """Store the settings of a group, and put them in force once they are durable. Fails with JournalRefused.

        The caller ensures that no other settings of the group are being stored.
        """
        stored = self.settings[group_id] = self.writes.put([(StateKey("settings", group_id), encoded)])

        def settle() -> None:
            del self.settings[group_id]
            if succeeded(stored):
                self.coordinator.store_settings(group_id, values)
                on_stored()

        self.writes.call_after(stored, settle)
        return stored

    def hold_group(self, group_id: str) -> Promise[None]:
        """Hold a new group once its existence is durable. Fails with JournalRefused."""
        return self._once_stored(group_id, FIRST_EPOCH, lambda: self.coordinator.add_group(group_id))

    def store_epoch(self, group: ShareGroup) -> Promise[None]:
        """Store the present epoch of a group. Fails with JournalRefused."""
        epoch = group.epoch

        def stored() -> None:
            group.stored_epoch = max(group.stored_epoch, epoch)

        return self._once_stored(group.group_id, epoch, stored)

    def delete_group(self, group_id: str, deletion: Promise[ErrorCode]) -> Promise[ErrorCode]:
        """Register the deletion of a group. Other requests to delete the group wait for the same promise."""
        if not deletion.done:
            self.deletions[group_id] = deletion
            deletion.on_settled(partial(self._deleted, group_id))
        return deletion

    def _deleted(self, group_id: str) -> None:
        del self.deletions[group_id]

    def _once_stored(self, group_id: str, epoch: int, on_stored: Callable[[], object]) -> Promise[None]:
        stored = self.writes.put([(StateKey("group", group_id), group_value(epoch))])

        def settle() -> None:
            if succeeded(stored):
                on_stored()

        self.writes.call_after(stored, settle)
        return stored


def succeeded(stored: Promise[None]) -> bool:
    try:
        stored.result()
    except JournalRefused:
        return False
    return True
