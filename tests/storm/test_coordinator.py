"""Weather for the whole coordinator over a journal that fails: long seeded stories, and every story of a tiny world.

What must hold is listed in `tests/support/storm.py`. A million steps: `python -m tests.storm.run --steps 1000000`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka_share_proxy.durable import state_producer
from kafka_share_proxy.durable.produce_errors import Follows, what_follows
from kafka_share_proxy.sharegroups.apis import k42_delete_groups
from kafka_share_proxy.sharegroups.model.coordinator import Share, ShareCoordinator, ShareKey
from kafka_share_proxy.sharegroups.model.offset_runs import AVAILABLE
from kafka_share_proxy.sharegroups.model.partition import SharePartition, Transition
from kafka_share_proxy.sharegroups.model.settings import GroupSettings
from kafka_share_proxy.sharegroups.model.snapshot import ShareSnapshot
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.sharegroups.state.group_changes import ShareChanges
from kafka_share_proxy.sharegroups.state.state_writes import ShareWrites

from tests.sharegroups.model.world import RandomChooser
from tests.support import storm, storm_admin
from tests.support.state_leader import AFTER_APPEND, CUT

SEEDS = 20
STEPS = 500
TINY_STEPS = 3


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_storm_breaks_nothing(seed: int) -> None:
    """Ten thousand steps of members, acknowledgements, altered offsets and settings, crashes, time-outs, refusals, lost
    responses and takeovers.
    """
    story = storm_admin.run(RandomChooser(seed), STEPS)
    assert sum(partition.lives > 1 for partition in story.partitions) > 1, "a storm without administrators"
    assert sum(len(partition.final) for partition in story.partitions) > 10, "a storm in which nothing happens"


def test_every_story_of_a_tiny_world_is_right() -> None:
    """Two members, three records, two deliveries: all that can happen in three steps."""
    assert storm.every_tiny_storm(TINY_STEPS) > 1000


def _reported_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: changes refused by the journal are applied all the same."""
    end = ShareWrites._end_change

    def keep_all(self: ShareWrites, key: ShareKey, transition: Transition, *, is_stored: bool) -> bool:
        return end(self, key, transition, is_stored=True)

    monkeypatch.setattr(ShareWrites, "_end_change", keep_all)


def _snapshot_of_the_future(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: held records are stored as delivered."""
    free = SharePartition.snapshot

    def snapshot(self: SharePartition, *transitions: Transition) -> ShareSnapshot:
        for run in self.runs:
            run.count += 1
        outcome = free(self, *transitions)
        for run in self.runs:
            run.count -= 1
        return outcome

    monkeypatch.setattr(SharePartition, "snapshot", snapshot)


def _deaf_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: locks end, and their records are not freed."""
    monkeypatch.setattr(ShareCoordinator, "expire", lambda self, now: [])


def _too_generous(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: released records are available to other members before the release is stored."""
    decide = SharePartition.decide_release

    def release(self: SharePartition, member_id: str, settings: GroupSettings) -> Transition | None:
        transition = decide(self, member_id, settings)
        for run in () if transition is None else transition.runs:
            run.state = AVAILABLE
        return transition

    monkeypatch.setattr(SharePartition, "decide_release", release)


def _reported_by_the_past(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: changes that waited while state was replaced are reported as done."""
    monkeypatch.setattr(ShareWrites, "_fence", lambda self, key, code: None)


def _never_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """State is stored anew, and the old one continues in memory."""
    add = ShareCoordinator.add_share

    def keep(self: ShareCoordinator, key: ShareKey, partition: SharePartition, node_id: int) -> Share:
        return self.share(key) or add(self, key, partition, node_id)

    monkeypatch.setattr(ShareCoordinator, "add_share", keep)


def _settings_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings hold before they are stored."""
    store = ShareChanges.store_settings

    def early(self: ShareChanges, group_id: str, *change: Any) -> Any:
        self.coordinator.store_settings(group_id, change[0])
        return store(self, group_id, *change)

    monkeypatch.setattr(ShareChanges, "store_settings", early)


def _forgotten_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group is gone from memory before its deletion is stored."""
    forget = k42_delete_groups._forget

    async def early(services: ShareServices, group_id: str, keys: Any) -> Any:
        services.coordinator.remove_group(group_id)
        return await forget(services, group_id, keys)

    monkeypatch.setattr(k42_delete_groups, "_forget", early)


FAULTS = [
    _reported_too_early, _snapshot_of_the_future, _deaf_to_time, _too_generous, _reported_by_the_past, _never_replaced,
    _settings_too_early, _forgotten_too_early,
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_storm_finds_faults(fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these breaks a promise; no storm is of use that does not see it."""
    fault(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        _all_seeds()


def _all_seeds() -> None:
    for seed in range(SEEDS):
        storm_admin.run(RandomChooser(seed), STEPS)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_storm_over_logs_breaks_nothing(seed: int) -> None:
    """The same over the product's writer and leaders that append and then return 3, 6, 7, 20, 56, -1 or nothing, then
    refuse the repeated append with 19, lose unreplicated records and get requests late: the content read back from
    their logs equals the responses.
    """
    story = storm_admin.run_over_logs(RandomChooser(seed), STEPS)
    assert sum(len(partition.final) for partition in story.partitions) > 10, "a storm in which nothing happens"


@pytest.mark.parametrize("code", [weather.response for weather in AFTER_APPEND if weather.response != CUT])
def test_a_storm_over_logs_finds_a_wrong_refusal(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A code that is also said after an append is taken for a definite refusal."""
    known = what_follows
    monkeypatch.setattr(
        state_producer, "what_follows", lambda requested: Follows.NOT_NOW if requested == code else known(requested)
    )
    with pytest.raises((AssertionError, KeyError)):
        _all_seeds_over_logs()


def _all_seeds_over_logs() -> None:
    for seed in range(2 * SEEDS):
        storm_admin.run_over_logs(RandomChooser(seed), STEPS)
