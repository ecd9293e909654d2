"""Random events for groups with redelivery delay, over a journal that fails.

The invariants are in `tests/support/storm_delays.py`. A million steps: `python -m tests.storm.run --delays`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka_share_proxy.sharegroups.model import queue_partition
from kafka_share_proxy.sharegroups.model.partition import SharePartition
from kafka_share_proxy.sharegroups.model.queue_partition import QueuePartition
from kafka_share_proxy.sharegroups.model.redelivery import DelayedRuns, delay_s

from tests.sharegroups.model.world import RandomChooser
from tests.support import storm_delays

SEEDS = 20
STEPS = 500


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_storm_delivers_no_failed_record_early_or_late(seed: int) -> None:
    story = storm_delays.run(RandomChooser(seed), STEPS)
    assert sum(len(partition.final) for partition in story.partitions) > 10, "a storm in which nothing happens"
    assert story.waits > 4, "a storm without delays"


def _grows_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: each delay is the first."""
    monkeypatch.setattr(queue_partition, "delay_s", lambda delay, _, chance: delay_s(delay, 1, chance))


def _expires_without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: only releases wait, as in NATS only expired locks do."""
    monkeypatch.setattr(QueuePartition, "expire", SharePartition.expire)


def _forgets_at_takeover(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: due times are not read from the stored state."""
    monkeypatch.setattr(QueuePartition, "delay_again", lambda self, due_s: None)


def _stores_rounded_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: a stored due time is before the due time."""
    stored_s = DelayedRuns.stored_s
    monkeypatch.setattr(DelayedRuns, "stored_s", lambda self, due: stored_s(self, due) - 1)


def _never_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: records that are due stay where they are."""
    monkeypatch.setattr(DelayedRuns, "take", lambda self, now: {})


def _alarms_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: the next due time is reported too late."""
    following = DelayedRuns.next
    monkeypatch.setattr(DelayedRuns, "next", lambda self: following(self) + 3)


def _starts_again_when_reverted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: a refused release leaves its due time behind."""
    monkeypatch.setattr(QueuePartition, "revert", SharePartition.revert)


FAULTS = [
    _grows_not, _expires_without_delay, _forgets_at_takeover, _stores_rounded_down, _never_due, _alarms_late,
    _starts_again_when_reverted,
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_storm_finds_faults(fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these breaks the delay. A storm that does not notice them is of no use."""
    fault(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        _all_seeds()


def _all_seeds() -> None:
    for seed in range(SEEDS):
        storm_delays.run(RandomChooser(seed), STEPS)
