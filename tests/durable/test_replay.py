"""Reading state partitions from a broker: in pieces, up to the offset that counts, and again when a leader moved."""

from __future__ import annotations

import dataclasses
import itertools
import random
from typing import Any

import pytest
import trio
from kafka_share_proxy.durable import replay
from kafka_share_proxy.durable.partition_log import ENDLESS, Replay
from kafka_share_proxy.durable.replay import ReplaySource
from kafka_share_proxy.sharegroups.state import state_records
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE, TOPIC, StateKey
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError, UpstreamLost
from kafka_share_proxy.wire.records import compression, records
from kafka_share_proxy.wire.records.records import Record, build_batch

from tests.support.target_brokers import TargetBrokers


class Leader(TargetBrokers):
    """Node with partitions that were cut at offset 5, from which a response returns one batch of each."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(nursery, nodes=1)
        self.make(TOPIC, 5)
        for partition in range(5):
            self.write(TOPIC, partition, [Record(b"deleted", b"")] * 5)
            self.target.delete_records(TOPIC, partition, 5)

    def append(self, partition: int, *records: Record, epoch: int = 1) -> int:
        """Append a batch and return its first offset."""
        return self.write(TOPIC, partition, list(records), 7, epoch)

    def source(self, leaders: dict[int, int]) -> ReplaySource:
        """Return where the partitions are read."""
        return ReplaySource(TOPIC, leaders, {1: self.address(1)} if leaders else {}, self.settings)


@pytest.fixture
def leader(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> Leader:
    monkeypatch.setattr(replay, "FETCH_BYTES", 300)
    monkeypatch.setattr(replay, "PARTITION_BYTES", 150)  # one batch, not two
    return Leader(nursery)


def takeover(epoch: int) -> Record:
    return SHARE_STATE.takeover("p:1", 0, 7, epoch)


def group(name: str, epoch: int) -> Record:
    return Record(state_records.encode_key(StateKey("group", name)), state_records.group_value(epoch))


async def test_log_is_read_up_to_the_takeover_record(leader: Leader) -> None:
    """One batch a response here; both partitions in each request."""
    replays = {}
    for partition in (3, 4):
        leader.append(partition, takeover(1))
        leader.append(partition, group("g", 1))
        leader.append(partition, group("g", 2), group("h", 1))
        until = leader.append(partition, takeover(2), epoch=2)
        leader.append(partition, group("g", 9), epoch=2)
        replays[partition] = Replay(SHARE_STATE.owner_epoch_of, until)
    await replay.read(replays, leader.source({3: 1, 4: 1}))
    for each in replays.values():
        assert each.done
        assert sorted(state_records.group_epoch(value) for value in each.values.values()) == [1, 2]
    assert leader.requested.count(ApiKey.FETCH) == 5, "the first is before the start of the logs"
    assert [each.start for each in replays.values()] == [5, 5]
    await replay.read(replays, leader.source({}))
    assert leader.requested.count(ApiKey.FETCH) == 5, "nothing is left to read"


async def test_a_log_from_offset_0_is_read_without_a_lookup_of_its_start(leader: Leader) -> None:
    leader.make("whole", 1)
    leader.write("whole", 0, [takeover(1), group("g", 1)], 7, 1)
    replays = {0: Replay(SHARE_STATE.owner_epoch_of, 1)}
    await replay.read(replays, leader.source({0: 1})._replace(topic="whole"))
    assert (replays[0].start, len(replays[0].values)) == (0, 1)
    assert ApiKey.LIST_OFFSETS not in leader.requested


async def test_a_log_that_is_read_alone_gets_all_bytes_of_a_response(leader: Leader) -> None:
    until = leader.append(3, takeover(1))
    for number in range(2):
        until = leader.append(3, group("g", number))
    await replay.read({3: Replay(SHARE_STATE.owner_epoch_of, until)}, leader.source({3: 1}))
    assert leader.requested.count(ApiKey.FETCH) == 2, "the first is before the start of the log"


async def test_end_offsets_are_returned_by_partition(leader: Leader) -> None:
    leader.append(3, group("g", 1), group("h", 1))
    assert await replay.ends([3, 4], leader.source({3: 1, 4: 1})) == {3: 7, 4: 5}


async def test_moved_leader_and_unknown_leader_are_reported(leader: Leader) -> None:
    leader.append(3, takeover(1))
    leader.refuse(ApiKey.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    leader.refuse(ApiKey.LIST_OFFSETS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    expected = {3: Replay(SHARE_STATE.owner_epoch_of, 5)}
    with pytest.raises(UpstreamLost, match="NOT_LEADER"):
        await replay.read(expected, leader.source({3: 1}))
    with pytest.raises(UpstreamLost, match="no leader is known"):
        await replay.read(expected, leader.source({}))


async def test_record_of_a_newer_release_is_reported(leader: Leader) -> None:
    leader.append(3, takeover(1))
    until = leader.append(3, Record(b"\0\x09new", b"x"))
    with pytest.raises(RemoteProtocolError, match="type 9"):
        await replay.read({3: Replay(SHARE_STATE.owner_epoch_of, until)}, leader.source({3: 1}))


async def test_batches_with_nothing_for_the_follower_are_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner follows what it has appended itself, thousands of batches a second."""
    takeover = SHARE_STATE.takeover("proxy:1", 1_000, 7, 1)
    kinds = [b"\0\0mine", b"\0\0other", SHARE_STATE.keep_alive().key]
    batches, followed_records, opened = [[takeover], [kinds[0]], [kinds[0], kinds[1]], [kinds[2], kinds[0]]], [], []
    data, offset = b"", 0
    for batch in batches:
        batch_records = [each if isinstance(each, Record) else Record(each, b"v", (), 2_000 + offset) for each in batch]
        data += build_batch(offset, batch_records, producer_id=7, producer_epoch=1, base_sequence=offset)
        offset += len(batch)
    decode = records.decode_records
    monkeypatch.setattr(records, "decode_records", lambda batch: opened.append(len(batch)) or decode(batch))
    followed = Replay(SHARE_STATE.owner_epoch_of, ENDLESS, sink=followed_records.append, unwanted=kinds[0])
    await replay.read_batches(followed, memoryview(data), replay.Pace())
    assert [record.key for record in followed_records if record.key != kinds[0]] == kinds[1:]
    assert len(opened) == (3 if records.KERNEL == "c" else 4)
    assert (followed.next_offset, followed.newest_ms) == (offset, 2_004)


def some_log(chance: random.Random) -> bytes:
    """Return the log of owners that follow each other, with late batches, transactions and compressed batches."""
    data, offset, epoch = bytearray(), 0, 0
    for number in range(chance.randrange(5, 60)):
        writer = epoch - (chance.random() < 0.1)
        flags: dict[str, Any] = {"producer_id": 7, "producer_epoch": writer, "base_sequence": 0}
        kind = (
            chance.choice(("takeover", "transaction", "marker", "compressed", *["plain"] * 8)) if number else "takeover"
        )
        if kind == "takeover":
            epoch += 1
            batch_records = [SHARE_STATE.takeover("p:1", number, 7, epoch)]
            flags["producer_epoch"] = epoch
        elif kind == "marker":
            flags |= {"is_transactional": True, "is_control": True, "base_sequence": -1}
            batch_records = [Record(chance.choice((b"\0\0\0\1", b"\0\0\0\0")), b"")]
        else:
            batch_records = [some_record(chance, number) for _ in range(chance.choice((1, 1, 2, 5)))]
            flags |= {"is_transactional": True} if kind == "transaction" else {}
            flags |= {"codec": compression.LZ4} if kind == "compressed" else {}
        data += build_batch(offset, batch_records, **flags)
        offset += len(batch_records)
    return bytes(data)


def some_record(chance: random.Random, number: int) -> Record:
    if chance.random() < 0.1:
        return SHARE_STATE.keep_alive()
    key = state_records.encode_key(StateKey("group", chance.choice("abc")))
    return Record(key, chance.choice((None, b"", b"%d" % number, b"same")), (), chance.choice((-1, 1000 + number)))


@pytest.mark.parametrize("seed", range(60))
async def test_plain_batches_have_the_same_values_as_decoded_ones(seed: int) -> None:
    """In pieces, up to a takeover or not, and with a damaged batch: the same state and the same error."""
    chance = random.Random(seed)
    data = some_log(chance)
    batches = list(records.iter_batches(data))
    if seed % 5 == 4:
        at = chance.randrange(batches[0].end + 21, len(data))
        data = data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]
    until = chance.choice((ENDLESS, chance.choice(batches).last_offset))
    cuts = sorted({0, len(data), *(chance.choice(batches).end for _ in range(2))})
    outcomes = []
    for plain in (b"", SHARE_STATE.plain_types):
        each, error = Replay(SHARE_STATE.owner_epoch_of, until, plain=plain), ""
        try:
            for begin, end in itertools.pairwise(cuts):
                await replay.read_batches(each, memoryview(data)[begin:end], replay.Pace())
        except RemoteProtocolError as failure:
            error = str(failure)
        outcomes.append((error, dataclasses.replace(each, plain=b"", _last_value=b"")))
    assert outcomes[0] == outcomes[1]
