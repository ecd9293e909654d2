"""Reading state partitions from a broker: in pieces, up to the offset that counts, and again when a leader moved."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from kafka_share_proxy.brokers import topic_log
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.durable import replay
from kafka_share_proxy.durable.partition_log import ENDLESS, Replay
from kafka_share_proxy.durable.replay import ReplaySource
from kafka_share_proxy.sharegroups.state import state_records
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE, TOPIC, StateKey
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError, UpstreamLost
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.records import Record, build_batch
from kafka_share_proxy.wire.values import Address

from tests.support.small_broker import RANGES, Broker

HERE = {1: Address("b1", 9092)}


def at(leader: Leader, leaders: dict[int, int], addresses: dict[int, Address] | None = None) -> ReplaySource:
    """Return where the partitions are read."""
    return ReplaySource(TOPIC, leaders, HERE if addresses is None else addresses, leader.settings())


class Leader(Broker):
    """Leader that also serves Fetch and ListOffsets of partitions that are lists of batches."""

    def __init__(self) -> None:
        super().__init__(ranges=RANGES | {2: (0, 7)})
        self.logs: dict[int, list[tuple[int, int, bytes]]] = {}
        """Partition -> (first offset, last offset, batch)."""
        self.code = ErrorCode.NONE
        self.fetches = 0

    def append(self, partition: int, *records: Record, epoch: int = 1) -> int:
        """Its first offset; offsets start at 5, as in a log that was cut."""
        log = self.logs.setdefault(partition, [])
        first = log[-1][1] + 1 if log else 5
        data = build_batch(first, records, producer_id=7, producer_epoch=epoch, base_sequence=0)
        log.append((first, first + len(records) - 1, data))
        return first

    def settings(self) -> ClusterClientSettings:
        async def connect(host: str, port: int) -> trio.abc.Stream:
            ours, theirs = trio.testing.memory_stream_pair()
            trio.lowlevel.spawn_system_task(self.serve, theirs)
            return ours

        return ClusterClientSettings(connect=connect)

    def _k2(self, request: Any) -> Any:
        response = registry.message("ListOffsetsResponse")
        (topic,) = request.topics
        found = []
        for wanted in topic.partitions:
            log = self.logs.get(wanted.partition_index, [])
            offset = 5 if wanted.timestamp == topic_log.EARLIEST or not log else log[-1][1] + 1
            found.append(
                response.ListOffsetsPartitionResponse(
                    partition_index=wanted.partition_index, error_code=self.code, offset=offset
                )
            )
        return response(topics=[response.ListOffsetsTopicResponse(name=topic.name, partitions=found)])

    def _k1(self, request: Any) -> Any:
        self.fetches += 1
        response = registry.message("FetchResponse")
        (topic,) = request.topics
        parts = []
        for wanted in topic.partitions:
            rest = [data for _, last, data in self.logs[wanted.partition] if last >= wanted.fetch_offset]
            parts.append(
                response.PartitionData(
                    partition_index=wanted.partition, high_watermark=100, records=rest[0] if rest else b""
                )
            )
        return response(responses=[response.FetchableTopicResponse(topic=topic.topic, partitions=parts)])


def takeover(epoch: int) -> Record:
    return SHARE_STATE.takeover("p:1", 0, 7, epoch)


def group(name: str, epoch: int) -> Record:
    return Record(state_records.encode_key(StateKey("group", name)), state_records.group_value(epoch))


async def test_read_to_the_takeover_and_no_further() -> None:
    """One batch a response here; both partitions in each request."""
    leader = Leader()
    replays = {}
    for partition in (3, 4):
        leader.append(partition, takeover(1))
        leader.append(partition, group("g", 1))
        leader.append(partition, group("g", 2), group("h", 1))
        until = leader.append(partition, takeover(2), epoch=2)
        leader.append(partition, group("g", 9), epoch=2)
        replays[partition] = Replay(SHARE_STATE.reign_of, until)
    await replay.read(replays, at(leader, {3: 1, 4: 1}))
    for each in replays.values():
        assert each.done
        assert sorted(state_records.group_epoch(value) for value in each.values.values()) == [1, 2]
    assert leader.fetches == 4
    await replay.read(replays, at(leader, {}, {}))
    assert leader.fetches == 4, "nothing is left to read"


async def test_ends_of_the_logs() -> None:
    leader = Leader()
    leader.append(3, group("g", 1), group("h", 1))
    leader.logs[4] = []
    assert await replay.ends([3, 4], at(leader, {3: 1, 4: 1})) == {3: 7, 4: 5}


async def test_moved_leader_and_unknown_leader_are_told() -> None:
    leader = Leader()
    leader.append(3, takeover(1))
    leader.code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    wanted = {3: Replay(SHARE_STATE.reign_of, 5)}
    with pytest.raises(UpstreamLost, match="NOT_LEADER"):
        await replay.read(wanted, at(leader, {3: 1}))
    with pytest.raises(UpstreamLost, match="no leader is known"):
        await replay.read(wanted, at(leader, {}))


async def test_record_of_a_newer_release_is_told() -> None:
    leader = Leader()
    leader.append(3, takeover(1))
    until = leader.append(3, Record(b"\0\x09new", b"x"))
    with pytest.raises(RemoteProtocolError, match="type 9"):
        await replay.read({3: Replay(SHARE_STATE.reign_of, until)}, at(leader, {3: 1}))


async def test_batches_with_nothing_for_the_follower_are_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner follows what it has appended itself, thousands of batches a second."""
    takeover = SHARE_STATE.takeover("proxy:1", 1_000, 7, 1)
    kinds = [b"\0\0mine", b"\0\0other", SHARE_STATE.keep_alive().key]
    batches, given, opened = [[takeover], [kinds[0]], [kinds[0], kinds[1]], [kinds[2], kinds[0]]], [], []
    data, offset = b"", 0
    for batch in batches:
        made = [each if isinstance(each, Record) else Record(each, b"v", (), 2_000 + offset) for each in batch]
        data += build_batch(offset, made, producer_id=7, producer_epoch=1, base_sequence=offset)
        offset += len(batch)
    decode = records.decode_records
    monkeypatch.setattr(records, "decode_records", lambda batch: opened.append(len(batch)) or decode(batch))
    followed = Replay(SHARE_STATE.reign_of, ENDLESS, sink=given.append, unwanted=kinds[0])
    await replay.take(followed, memoryview(data), replay.Pace())
    assert [record.key for record in given if record.key != kinds[0]] == kinds[1:]
    assert len(opened) == (3 if records.KERNEL == "c" else 4)
    assert (followed.next_offset, followed.newest_ms) == (offset, 2_004)
