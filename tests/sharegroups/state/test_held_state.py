"""Share state held by its owner: loaded from a log that an earlier release stored, and forgotten in parts."""

from __future__ import annotations

from pathlib import Path

import trio
from kafka_share_proxy.durable.partition_log import OwnerEpoch, Replay
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.sharegroups.model.coordinator import ShareCoordinator, ShareKey
from kafka_share_proxy.sharegroups.model.settings import BrokerShareLimits
from kafka_share_proxy.sharegroups.state.held_state import FORGOTTEN_AT_ONCE, HeldShareState
from kafka_share_proxy.sharegroups.state.state_records import PARTITIONS, SHARE_STATE, StateKey, encode_key, group_value
from kafka_share_proxy.wire.records.records import decode_records, iter_batches

STORED = Path(__file__).with_name("share_state_log.hex")
"""Batches, one a line, as the release before descriptions of states wrote them: two owners, the first of them late."""
TOPIC_ID = bytes(range(16))


def new() -> tuple[ShareCoordinator, HeldShareState]:
    coordinator = ShareCoordinator(BrokerShareLimits())
    return coordinator, HeldShareState(coordinator)


async def test_log_of_an_earlier_release_is_taken_over() -> None:
    """Byte for byte: groups, settings, share partitions; a deleted group stays deleted, a late owner is ignored."""
    data = b"".join(bytes.fromhex(line) for line in STORED.read_text().split())
    replay = Replay(SHARE_STATE.owner_epoch_of, until=9)
    for batch in iter_batches(data):
        replay.read(batch, lambda batch=batch: decode_records(data[batch.position : batch.end]))  # type: ignore[misc]
    assert (replay.done, replay.ignored, replay.owner_epoch) == (True, 1, OwnerEpoch(7, 1))
    coordinator, held = new()
    await held.load(replay.values.items())
    assert {name: group.epoch for name, group in coordinator.groups.items()} == {"orders": 5}
    assert coordinator.stored_settings("orders") == {"share.record.lock.duration.ms": "29000"}
    share = coordinator.share(ShareKey("orders", TOPIC_ID, 3))
    assert share is not None
    assert share.partition.start_offset == 41
    assert held.figures() == {"groups": 1, "share_partitions": 0}, "it was looked at, and rests no more"


def test_records_are_stored_as_that_release_stored_them() -> None:
    """Takeover, group and keep-alive; an owner of the old build reads what this one wrote."""
    lines = STORED.read_text().split()
    assert SHARE_STATE.takeover("old:9092", 1_700_000_000_000, 7, 0).value == records_of(lines[0])[0].value
    assert SHARE_STATE.takeover("old:9092", 1_700_000_000_000, 7, 0).key == records_of(lines[0])[0].key
    assert encode_key(StateKey("group", "orders")) == records_of(lines[1])[0].key
    assert group_value(4) == records_of(lines[1])[0].value
    assert (SHARE_STATE.keep_alive().key, None) == (records_of(lines[4])[0].key, records_of(lines[4])[0].value)
    assert SHARE_STATE.transactional_id(7) == "__proxy-share-7"


def records_of(line: str) -> list:
    return list(decode_records(bytes.fromhex(line)))


async def test_what_moves_away_is_forgotten_and_the_rest_stays() -> None:
    coordinator, held = new()
    names = [f"g{number}" for number in range(FORGOTTEN_AT_ONCE * 3)]
    for name in names:
        coordinator.add_group(name)
        coordinator.store_settings(name, {"share.record.lock.duration.ms": "29000"})
    lost = set(range(PARTITIONS // 2))
    await held.forget(lost)
    left = {name for name in names if state_partition(name) not in lost}
    assert set(coordinator.groups) == set(coordinator.groups_with_settings()) == left
    await held.forget(range(PARTITIONS))
    assert not coordinator.groups
    await trio.lowlevel.checkpoint()


async def test_windows_are_as_large_as_the_topic_takes() -> None:
    coordinator, held = new()
    key = ShareKey("g", TOPIC_ID, 0)
    share = coordinator.add_share(key, coordinator.new_partition(key, 0), 1)
    held.limit_records(20_000)
    assert share.partition.offsets_max * 20 < 20_000


async def test_everything_held_of_some_partitions_can_be_stored_again() -> None:
    """Groups, settings and share partitions, at rest or in use; what belongs to other owners is left out."""
    coordinator, held = new()
    names = ["orders", next(name for name in map(str, range(99)) if state_partition(name) != state_partition("orders"))]
    for name in names:
        group = coordinator.add_group(name)
        group.epoch = group.stored_epoch = 5
        coordinator.store_settings(name, {"share.record.lock.duration.ms": "29000"})
        for partition in (3, 4):
            share = coordinator.new_partition(ShareKey(name, TOPIC_ID, partition), 41)
            coordinator.rest(ShareKey(name, TOPIC_ID, partition), share.snapshot().encode())
    assert coordinator.share(ShareKey("orders", TOPIC_ID, 3)) is not None, "in use"
    stored = list(held.stored({state_partition("orders")}, 0))
    again, loads = new()
    await loads.load([(encode_key(key), value) for key, value in stored])
    assert list(again.groups) == ["orders"]
    assert again.groups["orders"].stored_epoch == 5
    assert again.stored_settings("orders") == coordinator.stored_settings("orders")
    assert set(again.keys_of("orders")) == set(coordinator.keys_of("orders"))
    assert sorted(loads.stored({state_partition("orders")}, 0)) == sorted(stored)
