"""10,000 records that always fail: what they cost the broker is what their backoff says, also over a kill -9.

Run by `tests/run tests/long/poison_records.py -s`, in a minute. Two members release every record. A relay between proxy
and broker counts requests. The delays are 2, 4 and 8 s: between deliveries the proxy sends the broker next to nothing.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
import trio
from kafka_share_proxy.client.share_consumer import ShareConsumer
from kafka_share_proxy.consumer.events import ConsumerError
from kafka_share_proxy.wire.definitions.api_key import ApiKey

from tests.client.test_share_real_brokers import EXPLICIT, World
from tests.support.brokers import OLD, QUICK, Running
from tests.support.relay import Relay

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

PARTITIONS, EACH = 5, 2_000
RECORDS = PARTITIONS * EACH
DELIVERIES = 4
"""Fewer than half of the limit of 10, from which on Kafka delivers batches in parts (sharegroups/README.md rule 38)."""
DELAYS_S = (2.0, 4.0, 8.0)
AT_ONCE = 500
"""Records of one fetch of a member."""
LIMIT_S = 150.0
IDLE_REQUESTS_MAX = 10
"""Requests a second while all records wait: keep-alive, metadata, the group of proxies."""


@dataclass
class CountingRelay(Relay):
    """A relay that counts the requests that pass, by API key."""

    counts: Counter[int] = field(default_factory=Counter)
    _rest: dict[int, bytes] = field(default_factory=dict)
    """Begun frames by upstream socket."""

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        self._rest[server.fileno()] = b""
        super()._serve(client, server)

    def _send(self, sink: socket.socket, data: bytes) -> None:
        super()._send(sink, data)
        if (rest := self._rest.get(sink.fileno())) is None:
            return
        rest += data
        while len(rest) >= 6 and len(rest) >= 4 + (size := struct.unpack_from(">i", rest)[0]):
            self.counts[struct.unpack_from(">h", rest, 4)[0]] += 1
            rest = rest[4 + size :]
        self._rest[sink.fileno()] = rest


@dataclass
class Arrivals:
    """Times at which records were delivered."""

    times: dict[tuple[int, int], list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))

    @property
    def complete(self) -> bool:
        return len(self.times) == RECORDS and all(each[-1][0] >= DELIVERIES for each in self.times.values())


async def fail_everything(consumer: ShareConsumer, arrivals: Arrivals) -> None:
    while not arrivals.complete:
        with suppress(ConsumerError):  # the proxy was killed: the records are delivered again
            for record in await consumer.poll(0.5):
                arrivals.times[record.partition, record.offset].append((record.delivery_count, time.monotonic()))
                consumer.release(record)
            await consumer.commit()


def test_failing_records_cost_the_broker_what_their_backoff_says(running: Running, fresh: Callable[[str], str]) -> None:
    kafka = running.cluster(OLD)
    relay = CountingRelay(kafka.bootstrap)
    with relay:
        upstream = {"bootstrap": relay.address, "nodes": {1: relay.address}}
        front = running.front(relay.address, {"upstream": upstream, "share_groups": {"broker": QUICK}})
        delay = {"share.redelivery.delay.ms": "2000", "share.redelivery.delay.max.ms": "60000"}
        settings = delay | {"share.redelivery.delay.multiplier": "2", "share.delivery.count.limit": "10"}
        world = World(front.bootstrap, fresh, PARTITIONS, **settings)
        for partition in range(PARTITIONS):
            world.produce(EACH, partition)
        relay.counts.clear()
        arrivals, began = Arrivals(), time.monotonic()

        async def play() -> None:
            with trio.fail_after(LIMIT_S):
                async with (
                    world.consumer(**EXPLICIT) as one,
                    world.consumer(**EXPLICIT) as two,
                    trio.open_nursery() as nursery,
                ):
                    nursery.start_soon(fail_everything, one, arrivals)
                    nursery.start_soon(fail_everything, two, arrivals)
                    await trio.sleep(5)
                    front.kill()
                    front.start()  # in this thread, with which the proxy ends

        trio.run(play)
        took = time.monotonic() - began
        counts = {ApiKey(key).name: count for key, count in relay.counts.most_common()}
    early = [
        (place, before, after)
        for place, times in arrivals.times.items()
        for before, after in pairwise(times)
        if after[0] > before[0] and after[1] - before[1] < 0.9 * DELAYS_S[before[0] - 1] - 1
    ]
    print(f"\n{RECORDS} records, {DELIVERIES} deliveries each in {took:.1f} s; requests to the broker: {counts}")
    assert early == []
    cycles = DELIVERIES * RECORDS / AT_ONCE
    idle = IDLE_REQUESTS_MAX * took
    assert counts["FETCH"] <= 3 * cycles + idle
    assert counts["PRODUCE"] <= 3 * cycles + idle
