"""The scripted Kafka of tests/consumer with frames and memory streams, for a consumer with its network task."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.consumer.requests import Lane, RequestFailure, UnsentRequest
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.values import Address

from tests.client.fake_broker import FakeBroker, FakeNet
from tests.consumer.world import FakeKafka

NODES = (1, 2)
LATENCY_S = 0.005
TURN_S = 0.01
"""How often the scripted group looks at its timers."""


def is_empty(response: Any) -> bool:
    """Return True for a Fetch response for which a broker would have waited."""
    partitions = [each for topic in response.responses for each in topic.partitions]
    return not any(each.error_code or each.records for each in partitions)


class KafkaNode(FakeBroker):
    """One broker of a scripted Kafka: one request of a connection at a time, as brokers do it."""

    def __init__(self, kafka: FakeKafka, node_id: int, on_request: Callable[[], None]) -> None:
        """`on_request` is called after each request."""
        super().__init__(lambda header, request: None)
        self._on_request = on_request
        self.kafka = kafka
        self.node_id = node_id
        self.fetch_s = 0.0
        """How long a response to Fetch takes, as one of very many bytes does."""

    async def _response(self, stream: trio.abc.Stream, frame: bytes) -> None:
        header, request = frames.decode_request(frame)
        if header.key == 18:
            await super()._response(stream, frame)
            return
        name = registry.API_KEYS[header.key]
        self.requests.append((name, request))
        arrived: list[Any] = []
        there = trio.Event()

        def reply(response: Any) -> None:
            arrived.append(response)
            there.set()

        requested = UnsentRequest(
            sender=None,  # type: ignore[arg-type]  # unused: the response goes over the wire
            api=name,
            message=request,
            versions=(header.version, header.version),
            timeout_s=30,
            node_id=self.node_id,
            lane=Lane.DATA,
        )
        self.kafka.take(header.client_id or "", requested, reply, trio.current_time())
        self._on_request()
        await there.wait()
        while self.stalled:
            await self._flows.wait()
        if isinstance(arrived[0], RequestFailure):
            raise trio.BrokenResourceError
        await trio.sleep(request.max_wait_ms / 1000 if name == "Fetch" and is_empty(arrived[0]) else LATENCY_S)
        await trio.sleep(self.fetch_s if name == "Fetch" else 0.0)
        await self._write(stream, frames.response(header.key, header.version, header.correlation_id, arrived[0]))


class ScriptedCluster:
    """Two brokers, reached by the addresses that they name."""

    def __init__(self, nursery: trio.Nursery, kafka: FakeKafka) -> None:
        self.kafka = kafka
        self._requested = trio.Event()
        self.nodes = {node_id: KafkaNode(kafka, node_id, lambda: self._requested.set()) for node_id in NODES}
        self.net = FakeNet(nursery, {Address("kafka", 9090 + node_id): node for node_id, node in self.nodes.items()})
        nursery.start_soon(self._timers)

    async def _timers(self) -> None:
        """Run the group's timers a turn after each request, and at its next deadline."""
        while True:
            self._requested = trio.Event()
            self.kafka.group.tick(trio.current_time())
            due = self.kafka.group.next_deadline()
            with trio.move_on_at(max(due, trio.current_time() + TURN_S)):
                await self._requested.wait()
                await trio.sleep(TURN_S)

    @property
    def requests(self) -> list[str]:
        """Return the APIs of all requests received, one node after the other."""
        return [name for node in self.nodes.values() for name, _ in node.requests]

    def consumer(self, **options: Any) -> Any:
        """See open_consumer."""
        return open_consumer("kafka:9091,kafka:9092", connect=self.net, **{"client_id": "a", **options})


@asynccontextmanager
async def cluster(kafka: FakeKafka) -> AsyncIterator[ScriptedCluster]:
    async with trio.open_nursery() as nursery:
        yield ScriptedCluster(nursery, kafka)
        nursery.cancel_scope.cancel()
