"""Random events for groups with key order, over a journal that fails.

The invariants are in `tests/support/storm_order.py`. A million steps: `python -m tests.storm.run --order`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka_share_proxy.sharegroups.model.key_order import KeyOrder
from kafka_share_proxy.sharegroups.model.ordered_acquiring import OrderedAcquirer
from kafka_share_proxy.sharegroups.model.queue_partition import QueuePartition

from tests.sharegroups.model.world import RandomChooser
from tests.support import storm_order

SEEDS = 20
STEPS = 500


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_storm_keeps_the_order_of_every_key(seed: int) -> None:
    story = storm_order.run(RandomChooser(seed), STEPS)
    assert sum(len(partition.final) for partition in story.partitions) > 10, "a storm in which nothing happens"
    assert len(story.settles) > 4, "a storm without keys"


def _blocks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: records are acquired although an earlier one has the same key."""
    add = KeyOrder.add
    monkeypatch.setattr(KeyOrder, "add", lambda self, keys: add(self, keys)[:0])


def _frees_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: a released record frees its key."""
    freed = QueuePartition._order_freed
    monkeypatch.setattr(
        QueuePartition, "_order_freed", lambda self, order, run, state: freed(self, order, run, state or 2)
    )


def _frees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: the next record of a settled key stays blocked."""
    monkeypatch.setattr(QueuePartition, "_unblock", lambda self, offsets: None)


def _knows_all_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: after a takeover the keys of stored records are not read again."""
    begin = QueuePartition._begin_order

    def known(self: QueuePartition) -> None:
        begin(self)
        assert self.order is not None
        self.order.known_to = self.end_offset + 1

    monkeypatch.setattr(QueuePartition, "_begin_order", known)


def _forgets_held_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: records that members hold when a group is switched to key order do not block their key."""
    unsettled = OrderedAcquirer._is_unsettled

    def free(self: OrderedAcquirer, offset: int) -> bool:
        run = next(self.window.between(offset, offset), None)
        return unsettled(self, offset) and run is not None and run.owner is None

    monkeypatch.setattr(OrderedAcquirer, "_is_unsettled", free)


FAULTS = [_blocks_nothing, _frees_too_early, _frees_nothing, _knows_all_keys, _forgets_held_records]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_storm_finds_faults(fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these breaks key order. A storm that does not notice them is of no use."""
    fault(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        _all_seeds()


def _all_seeds() -> None:
    for seed in range(SEEDS):
        storm_order.run(RandomChooser(seed), STEPS)
