"""Weather with administrators: offsets altered and deleted, settings changed, at any moment, as the handlers do it.

They do not even wait until nobody holds anything: members may be gone while their share sessions go on.
"""

from __future__ import annotations

from proxy.apis.group_configs import stored_value
from proxy.share.settings import DELIVERY_COUNT_LIMIT, LOCK_DURATION, RENEW_ENABLE
from tests.share.world import Chooser
from tests.support import storm
from tests.support.storm import Storm, refused

VALUES = {
    LOCK_DURATION: (None, "15000", "60000"),
    DELIVERY_COUNT_LIMIT: (None, "2", "5"),
    RENEW_ENABLE: (None, "false", "true"),
}


class AdminStorm(Storm):
    """One more kind of person."""

    def __init__(self, chooser: Chooser, *, groups: int = 3, partitions: int = 2, members: int = 3, limit: int = 4):
        super().__init__(chooser, groups=groups, partitions=partitions, members=members, limit=limit)
        self.actions += [self.alter_offsets, self.delete_offsets, *[self.begin] * 2, *[self.change_settings] * 2]

    def alter_offsets(self) -> None:
        """AlterShareGroupOffsets of one share partition, unless somebody is at its beginning."""
        partition = self._some_partition()
        if partition.key not in self.starting:
            group = self.coordinator.group(partition.key.group_id)
            assert group is not None
            group.offsets_altered()
            offset = self.chooser.number(0, partition.end)
            self.story[-1] += f" {partition.key.group_id}/{partition.key.partition} to {offset}"
            self.begin_at(partition, offset)

    def delete_offsets(self) -> None:
        """DeleteShareGroupOffsets, or an offset of -1."""
        partition = self._some_partition()
        if partition.key not in self.starting and self.coordinator.share(partition.key) is not None:
            self.story[-1] += f" {partition.key.group_id}/{partition.key.partition}"
            self.when_replaced(partition, None, 0, self.writes.remove([partition.key]))

    def begin(self) -> None:
        """The first ShareFetch of a share partition without state: earliest, or latest."""
        partition = self._some_partition()
        if partition.key not in self.starting and self.coordinator.share(partition.key) is None:
            self.begin_at(partition, (0, partition.end)[self.chooser.number(0, 1)])

    def change_settings(self) -> None:
        """IncrementalAlterConfigs of one setting, unless another change of the group is under way."""
        group_id, name = self._some_group(), list(VALUES)[self.chooser.number(0, len(VALUES) - 1)]
        value = VALUES[name][self.chooser.number(0, 2)]
        if group_id in self.changes.settings:
            return
        after = {**self.coordinator.stored_settings(group_id)}
        after.pop(name, None)
        if value is not None:
            after[name] = value
        self.story[-1] += f" {group_id} {after}"
        told, coordinator = self.told[group_id], self.coordinator
        told.asked = after
        stored = self.changes.store_settings(group_id, after, stored_value(after), lambda: None)

        def settle() -> None:
            if coordinator is self.coordinator and not self._gone:
                told.asked = None
                if not refused(stored):
                    told.change(after)

        stored.on_settled(settle)


def run(chooser: Chooser, steps: int, **sizes: int) -> Storm:
    """One storm; what went wrong is raised with the end of its story."""
    return storm.run(chooser, steps, AdminStorm, **sizes)
