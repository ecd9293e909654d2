"""A broker of a few lines that keeps `__proxy_views`: it is made, written, read and waited for."""

from __future__ import annotations

from typing import Any

import trio
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.views.state_records import TOPIC
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.values import Address

from tests.support.small_broker import RANGES, Broker, Net
from tests.support.topic_settings import COMPACTED, described

BOOTSTRAP, LEADER = Address("boot", 1), Address("b1", 9092)
POLL_S = 0.1


class ViewsBroker(Broker):
    """The only one of its cluster."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            ranges=RANGES | {1: (4, 17), 2: (1, 9), 19: (2, 7), 20: (1, 6), 32: (1, 4), 37: (0, 3)}, **options
        )
        self.log: list[tuple[bytes | None, bytes | None]] = []
        self.first = 0
        """Records before it were deleted."""
        self.codes: dict[int, int] = {}
        """API key -> error code of its responses about the topic."""
        self.created: Any = None
        self.settings: dict[str, str | None] = dict(COMPACTED)
        """Settings of the topic."""
        self.fetches = 0

    async def _response(self, stream: trio.abc.Stream, frame: bytes) -> bool:
        header, request = frames.decode_request(frame)
        if header.key == 1 and not self.codes.get(1):
            self.fetches += 1
            offset = request.topics[0].partitions[0].fetch_offset
            with trio.move_on_after(request.max_wait_ms / 1000):
                while self.first <= offset and offset >= self.end:  # noqa: ASYNC110  # tests append to a plain list
                    await trio.sleep(POLL_S)
        return await super()._response(stream, frame)

    @property
    def end(self) -> int:
        return self.first + len(self.log)

    def _topic(self, response: Any, name: str) -> Any:
        entry = super()._topic(response, name)
        entry.error_code = self.codes.get(3, entry.error_code)
        return entry

    def _k0(self, request: Any) -> Any:
        message = registry.message("ProduceResponse")
        code, base = self.codes.get(0, 0), self.end
        if not code:
            batch = request.topic_data[0].partition_data[0].records
            self.log += [(record.key, record.value) for record in records.decode_records(batch)]
        told = message.PartitionProduceResponse(index=0, error_code=code, base_offset=base)
        return message(responses=[message.TopicProduceResponse(name=TOPIC, partition_responses=[told])])

    def _k1(self, request: Any) -> Any:
        message = registry.message("FetchResponse")
        offset = request.topics[0].partitions[0].fetch_offset
        code = self.codes.get(1, 0) or (1 if offset < self.first or offset > self.end else 0)
        data = None
        if not code and offset < self.end:
            kept = [records.Record(key, value) for key, value in self.log[max(offset - 1, self.first) - self.first :]]
            data = records.build_batch(max(offset - 1, self.first), kept)  # whole batches: one record too many
        told = message.PartitionData(
            partition_index=0, error_code=code, high_watermark=self.end, records=data, aborted_transactions=None
        )
        return message(responses=[message.FetchableTopicResponse(topic=TOPIC, partitions=[told])])

    def _k2(self, request: Any) -> Any:
        message = registry.message("ListOffsetsResponse")
        asked = request.topics[0].partitions[0].timestamp
        told = message.ListOffsetsPartitionResponse(
            partition_index=0, error_code=self.codes.get(2, 0), offset=self.first if asked == -2 else self.end
        )
        return message(topics=[message.ListOffsetsTopicResponse(name=TOPIC, partitions=[told])])

    def _k32(self, request: Any) -> Any:
        return described(request, self.settings, self.codes.get(32, 0))

    def _k19(self, request: Any) -> Any:
        message = registry.message("CreateTopicsResponse")
        (self.created,) = request.topics
        code = self.codes.get(19, 0)
        if not code:
            self.topics[self.created.name] = self.created.num_partitions
        return message(topics=[message.CreatableTopicResult(name=self.created.name, error_code=code, configs=None)])


def client(nursery: trio.Nursery, broker: Broker) -> ClusterClient:
    """The proxy's own client of that cluster."""
    net = Net(nursery, {BOOTSTRAP: broker, LEADER: broker})
    return ClusterClient([BOOTSTRAP], ClusterClientSettings(connect=net))
