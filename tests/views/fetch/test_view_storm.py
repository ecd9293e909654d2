"""Many readers of the slots of one base, seeded disorder: in every case each slot is read once and in order.

Producers write, clients connect and disconnect with their requests in flight, leaders move, brokers respond late,
threads take their time, the cache is nearly always too small. Every reader keeps its own position, as consumers do.
"""

from __future__ import annotations

import random

import pytest
from kafka_share_proxy.views.model.slots import EvenCut
from kafka_share_proxy.views.settings import Views
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError

from tests.support.view_ports import HeldWorkers, ViewWorld, next_offset, offsets_in, partitions_of

SLOTS, PARTITIONS = 4, 2
STEPS, DRAIN_MAX = 150, 400


class Reader:
    """Some partitions of the view, at their leaders."""

    def __init__(self, storm: Storm, partitions: list[int]) -> None:
        self.storm = storm
        self.positions = dict.fromkeys(partitions, 0)
        self.got: dict[int, list[int]] = {partition: [] for partition in partitions}
        self.node = 1
        self.connection = storm.world.connect(self.node)
        self.reply = None
        self.requested: dict[int, int] = {}

    def step(self) -> None:
        if self.reply is None:
            self.send_request()
        elif self.reply.done:
            self.take()

    def send_request(self) -> None:
        storm = self.storm
        leads = {p: o for p, o in self.positions.items() if storm.base.logs[p // SLOTS].leader == self.node}
        is_elsewhere = len(leads) < len(self.positions) and storm.random.random() < 0.3
        if not leads or is_elsewhere or not self.connection.open:
            self.reconnect()
            return
        self.requested = dict(leads)
        options = {
            "wait_ms": storm.random.choice([0, 50, 500]),
            "min_bytes": storm.random.choice([0, 1, 1, 500]),
            "max_bytes": storm.random.choice([1, 300, 1 << 20]),
            "partition_max_bytes": storm.random.choice([1, 200, 1 << 20]),
            "version": storm.random.choice([11, 13, 15]),
            "isolation": 0,
        }
        name = storm.view if options["version"] >= 13 else storm.name
        self.reply = storm.world.fetch(self.connection, {name: self.requested}, **options)

    def take(self) -> None:
        reply, self.reply = self.reply, None
        try:
            response = reply.message
        except ProxyError:
            self.reconnect()
            return
        for (_, partition), entry in partitions_of(response).items():
            if entry.error_code:
                assert entry.error_code in (
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    ErrorCode.FENCED_LEADER_EPOCH,
                    ErrorCode.UNKNOWN_LEADER_EPOCH,
                )
                self.reconnect()
                return
            assert offsets_in(entry.records) == sorted(offsets_in(entry.records))
            self.got[partition] += offsets_in(entry.records)
            self.positions[partition] = next_offset(entry.records, self.requested[partition])

    def leave(self) -> None:
        """Disconnect at any point; the same records are requested again later."""
        self.connection.close()
        self.reply = None
        self.reconnect()

    def reconnect(self) -> None:
        if self.connection.open and self.reply is None:
            self.connection.close()
        self.node = self.storm.random.choice([1, 2])
        self.connection = self.storm.world.connect(self.node)


class Storm:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.workers = HeldWorkers() if seed % 2 else None
        options = Views.model_construct(
            cache_bytes=self.random.choice([1, 2000, 1 << 20]),
            cache_age_s=self.random.choice([0.01, 10.0]),
            read_bytes=self.random.choice([1 << 16, 1 << 20]),
            scanned_bytes=self.random.choice([2000, 1 << 20]),
        )
        self.world = ViewWorld(view_options=options, workers=self.workers)
        self.base = self.world.topic("t", (1, 1))
        self.name = f"__view.r{SLOTS}.t"
        self.view = self.world.view(self.name)
        self.keys: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        every = list(range(SLOTS * PARTITIONS))
        self.random.shuffle(every)
        self.readers = [Reader(self, every[at::3]) for at in range(3)] + [Reader(self, [p]) for p in every]

    def produce(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        keys = [b"k%d" % self.random.randrange(40) for _ in range(self.random.randrange(1, 30))]
        self.keys[partition] += keys
        self.world.produce(self.base, keys, partition)

    def disturb(self) -> None:
        cluster = self.world.cluster
        fault = self.random.randrange(8)
        if fault == 0:
            self.random.choice(self.readers).leave()
        elif fault == 1:
            cluster.move_leader(self.base, self.random.choice([1, 2]), self.random.randrange(PARTITIONS))
        elif fault == 2:
            cluster.held.add(1)
        elif fault == 3:
            cluster.release()
        elif fault == 4:
            self.random.choice(self.readers).connection.lose_upstream()
        elif self.workers is not None:
            self.workers.work()
        self.world.timers.advance(self.random.choice([0.0, 0.01, 0.3]))

    def run(self) -> None:
        for _ in range(STEPS):
            self.random.choice([self.produce, self.disturb, *[self.step] * 6])()
        for _ in range(DRAIN_MAX):
            self.world.cluster.release()
            if self.workers is not None:
                self.workers.work()
            self.world.timers.advance(0.3)
            for reader in self.readers:
                reader.step()
            ends = [log.end for log in self.base.logs]
            if all(reader.positions[p] == ends[p // SLOTS] for reader in self.readers for p in reader.positions):
                return
        raise AssertionError("not everything was read")

    def step(self) -> None:
        self.random.choice(self.readers).step()


@pytest.mark.parametrize("seed", range(8))
def test_every_slot_is_read_once_and_in_order(seed):
    """Readers of one slot and of several share one cache."""
    storm = Storm(seed)
    storm.run()
    cut = EvenCut(SLOTS)
    for reader in storm.readers:
        for partition, got in reader.got.items():
            base, slot = divmod(partition, SLOTS)
            assert got == [o for o, key in enumerate(storm.keys[base]) if cut.slot_of(key, o) == slot]
    assert not storm.world.views.reads.flights.where(lambda read: read.done.done)
