"""Changes of share groups that are under way, and outlive whoever asked for them.

Theory of operation. What is asked of the journal cannot be taken back: it may be stored although nobody waits for it,
because the client left or was told to come again. So what follows once it is stored - the settings hold, the group is
held, or gone - happens here and not in the handler. The next change of the same thing may not cross it: it waits, or
its client is told to come again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from proxy.durable.interfaces import JournalRefused
from proxy.loop.promise import Promise
from proxy.sharegroups.model.coordinator import ShareCoordinator
from proxy.sharegroups.model.group import ShareGroup
from proxy.sharegroups.state_records import StateKey, group_value
from proxy.sharegroups.state_writes import ShareWrites
from proxy.wire.errors import ErrorCode

FIRST_EPOCH = 1

BEING_DELETED = "The group is being deleted."
"""Said with 15 while that is being stored."""


@dataclass(slots=True)
class ShareChanges:
    """Of groups and their settings."""

    coordinator: ShareCoordinator
    writes: ShareWrites
    settings: dict[str, Promise[None]] = field(default_factory=dict)
    """Groups whose settings are being stored."""
    deletions: dict[str, Promise[ErrorCode]] = field(default_factory=dict)
    """Groups that somebody has asked to delete."""

    def store_settings(
        self, group_id: str, values: Mapping[str, str], encoded: bytes | None, then: Callable[[], None]
    ) -> Promise[None]:
        """Put the settings of a group in force once they are durable; the caller sees to it that none are under way.

        Fails with JournalRefused.
        """
        stored = self.settings[group_id] = self.writes.put([(StateKey("settings", group_id), encoded)])

        def settle() -> None:
            del self.settings[group_id]
            if succeeded(stored):
                self.coordinator.store_settings(group_id, values)
                then()

        self.writes.after(stored, settle)
        return stored

    def hold_group(self, group_id: str) -> Promise[None]:
        """Hold a new group once its existence is durable. Fails with JournalRefused."""
        return self._once_stored(group_id, FIRST_EPOCH, lambda: self.coordinator.add_group(group_id))

    def store_epoch(self, group: ShareGroup) -> Promise[None]:
        """Store the epoch a group has now. Fails with JournalRefused."""
        epoch = group.epoch

        def stored() -> None:
            group.stored_epoch = max(group.stored_epoch, epoch)

        return self._once_stored(group.group_id, epoch, stored)

    def delete_group(self, group_id: str, deletion: Promise[ErrorCode]) -> Promise[ErrorCode]:
        """Whoever else asks for the deletion of this group waits for the same."""
        if not deletion.done:
            self.deletions[group_id] = deletion
            deletion.on_settled(partial(self._deleted, group_id))
        return deletion

    def _deleted(self, group_id: str) -> None:
        del self.deletions[group_id]

    def _once_stored(self, group_id: str, epoch: int, then: Callable[[], object]) -> Promise[None]:
        stored = self.writes.put([(StateKey("group", group_id), group_value(epoch))])

        def settle() -> None:
            if succeeded(stored):
                then()

        self.writes.after(stored, settle)
        return stored


def succeeded(stored: Promise[None]) -> bool:
    """Whether a settled append is durable."""
    try:
        stored.result()
    except JournalRefused:
        return False
    return True
