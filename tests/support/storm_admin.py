"""Weather with administrators: offsets altered and deleted, settings changed, groups deleted, as the handlers do it.

They do not even wait until nothing is held: members may be gone while their share sessions continue.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from kafka_share_proxy.loop.promise import Promise, on_its_own
from kafka_share_proxy.sharegroups.apis.group_configs import stored_value
from kafka_share_proxy.sharegroups.apis.k42_delete_groups import deletion
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.model.settings import DELIVERY_COUNT_LIMIT, LOCK_DURATION, RENEW_ENABLE
from kafka_share_proxy.sharegroups.state.state_records import StateKey
from kafka_share_proxy.sharegroups.state.state_writes import Outcome, ShareWrites
from kafka_share_proxy.wire.errors import ErrorCode

from tests.sharegroups.model.world import Chooser
from tests.support import storm
from tests.support.storm import Storm, refused
from tests.support.storm_journals import LogJournal

VALUES = {
    LOCK_DURATION: (None, "15000", "60000"),
    DELIVERY_COUNT_LIMIT: (None, "2", "5"),
    RENEW_ENABLE: (None, "false", "true"),
}


class AdminStorm(Storm):
    """One more kind of person."""

    def __init__(self, chooser: Chooser, *, groups: int = 3, partitions: int = 2, members: int = 3, limit: int = 4):
        super().__init__(chooser, groups=groups, partitions=partitions, members=members, limit=limit)
        self.actions += [
            self.alter_offsets, self.delete_offsets, self.delete_group, *[self.begin] * 3, *[self.change_settings] * 2,
        ]  # fmt: skip

    def make_writes(self) -> ShareWrites:
        return Watched(self)

    def alter_offsets(self) -> None:
        """Alter the offset of one share partition as AlterShareGroupOffsets does, unless it is being started."""
        partition = self._some_partition()
        group = self.coordinator.group(partition.key.group_id)
        if group is not None and not group.deleting and partition.key not in self.starting:
            group.offsets_altered()
            offset = self.chooser.number(0, partition.end)
            self.story[-1] += f" {partition.key.group_id}/{partition.key.partition} to {offset}"
            self.begin_at(partition, offset)

    def delete_offsets(self) -> None:
        """Delete the offset of a share partition, as DeleteShareGroupOffsets or an offset of -1 does."""
        partition = self._some_partition()
        group = self.coordinator.group(partition.key.group_id)
        held = group is not None and not group.deleting and self.coordinator.share(partition.key) is not None
        if held and partition.key not in self.starting:
            self.story[-1] += f" {partition.key.group_id}/{partition.key.partition}"
            self.writes.remove([partition.key])

    def delete_group(self) -> None:
        """Delete a group as DeleteGroups does, unless a share partition is being started.

        A repeated request gets the same response.
        """
        group_id = self._some_group()
        group, coordinator = self.coordinator.group(group_id), self.coordinator
        if group is None or group_id in self.deleting or any(key.group_id == group_id for key in self.starting):
            return
        self.story[-1] += f" {group_id} with {len(group.members)} members"
        services: Any = SimpleNamespace(
            coordinator=coordinator,
            writes=self.writes,
            reads=SimpleNamespace(starting=self.starting),
            timers=SimpleNamespace(now=lambda: self.now),
            notes=lambda *_, **__: None,
        )
        self.deleting.add(group_id)
        outcome = on_its_own(deletion(services, group))

        def settle() -> None:
            if coordinator is self.coordinator and not self._lost:
                self.deleting.discard(group_id)
                if outcome.result() == ErrorCode.NONE:
                    assert coordinator.keys_of(group_id) == (), "state of a deleted group"
                    assert not [key for key in self.journal.stored if is_state_of(group_id, key)], "stored"
                    self.response_epochs[group_id] = 0

        outcome.on_settled(settle)

    def begin(self) -> None:
        """Begin a share partition without state as the first ShareFetch does: earliest, or latest."""
        partition = self._some_partition()
        group = self.coordinator.group(partition.key.group_id)
        deleting = group is not None and group.deleting
        if not deleting and partition.key not in self.starting and self.coordinator.share(partition.key) is None:
            self.begin_at(partition, (0, partition.end)[self.chooser.number(0, 1)])

    def change_settings(self) -> None:
        """Change one setting as IncrementalAlterConfigs does, unless another change of the group is in flight."""
        group_id, name = self._some_group(), list(VALUES)[self.chooser.number(0, len(VALUES) - 1)]
        value = VALUES[name][self.chooser.number(0, 2)]
        if group_id in self.changes.settings:
            return
        after = {**self.coordinator.stored_settings(group_id)}
        after.pop(name, None)
        if value is not None:
            after[name] = value
        self._store(group_id, after)

    def _store(self, group_id: str, after: dict[str, str]) -> None:
        """Store the settings of a group. They are reported when they are stored."""
        if self.story:
            self.story[-1] += f" {group_id} {after}"
        settings, coordinator = self.reported[group_id], self.coordinator
        settings.requested = after
        stored = self.changes.store_settings(group_id, after, stored_value(after), lambda: None)

        def settle() -> None:
            if coordinator is self.coordinator and not self._lost:
                settings.requested = None
                if not refused(stored):
                    settings.change(after)

        stored.on_settled(settle)


class LogStorm(AdminStorm):
    """Storm over the product's own writer, and leaders with every fault."""

    def __init__(self, chooser: Chooser, *, groups: int = 2, partitions: int = 2, members: int = 3, limit: int = 4):
        super().__init__(chooser, groups=groups, partitions=partitions, members=members, limit=limit)
        self.actions += [self.lose_response] * 8

    def make_journal(self) -> LogJournal:
        return LogJournal()


class Watched(ShareWrites):
    """Reports deletions to the storm."""

    def __init__(self, storm: AdminStorm) -> None:
        nothing = lambda *_, **__: None  # noqa: E731 - of three shapes
        journal: Any = storm.journal
        super().__init__(journal, storm.coordinator, nothing, lambda: storm.now, nothing)
        self._storm = storm

    def remove(self, keys: Sequence[ShareKey]) -> Promise[Outcome]:
        outcomes = [super(Watched, self).remove([key]) for key in keys]
        for key, outcome in zip(keys, outcomes, strict=True):
            self._storm.when_replaced(self._storm.of(key), None, 0, outcome)

        async def together() -> Outcome:
            return {key: code for outcome in outcomes for key, code in (await outcome).items()}

        return on_its_own(together())


def is_state_of(group_id: str, key: StateKey) -> bool:
    return key.group_id == group_id and key.kind != "settings"


def run(chooser: Chooser, steps: int, **sizes: int) -> Storm:
    """Run one storm. A failure is raised with the end of its story."""
    return storm.run(chooser, steps, AdminStorm, **sizes)


def run_over_logs(chooser: Chooser, steps: int, **sizes: int) -> Storm:
    """Run the same over state partitions whose leaders append and then return errors."""
    return storm.run(chooser, steps, LogStorm, **sizes)
