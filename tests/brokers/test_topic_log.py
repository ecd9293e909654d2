"""Requests about the log of an internal topic, and the entries of their responses."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.brokers.topic_log import EARLIEST, fetch, request_offsets
from kafka_share_proxy.wire.definitions import registry


class Opened:
    """A connection to the leader."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self.asked: Any = None

    async def send_request(self, key: int, query: Any, version: int) -> Any:
        self.asked = registry.request(key, version).decode(registry.request(key, version).encode(query))
        return self._response


async def test_offsets_of_every_partition_errors_included() -> None:
    response = registry.message("ListOffsetsResponse")
    entries = [response.ListOffsetsPartitionResponse(partition_index=n, error_code=6 * n, offset=7) for n in (0, 1)]
    opened = Opened(response(topics=[response.ListOffsetsTopicResponse(name="t", partitions=entries)]))
    found = await request_offsets(opened, "t", [0, 1], EARLIEST)  # type: ignore[arg-type]
    assert [(entry.partition_index, entry.error_code, entry.offset) for entry in found] == [(0, 0, 7), (1, 6, 7)]
    (topic,) = opened.asked.topics
    assert (topic.name, [(p.partition_index, p.timestamp) for p in topic.partitions]) == ("t", [(0, -2), (1, -2)])


async def test_fetch_goes_by_name_without_a_session() -> None:
    response = registry.message("FetchResponse")
    entries = [response.PartitionData(partition_index=n, high_watermark=0, records=None) for n in (3, 5)]
    opened = Opened(response(responses=[response.FetchableTopicResponse(topic="t", partitions=entries)]))
    limits = {"wait_ms": 20, "max_bytes": 300, "partition_bytes": 100}
    found = await fetch(opened, "t", {3: 10, 5: 0}, **limits)  # type: ignore[arg-type]  # it has all methods used here
    assert [entry.partition_index for entry in found] == [3, 5]
    request = opened.asked
    assert (request.session_id, request.session_epoch, request.max_wait_ms, request.max_bytes) == (0, -1, 20, 300)
    (topic,) = request.topics
    asked = [(each.partition, each.fetch_offset, each.partition_max_bytes) for each in topic.partitions]
    assert (topic.topic, asked) == ("t", [(3, 10, 100), (5, 0, 100)])


async def test_fetch_goes_by_topic_id_where_it_is_known() -> None:
    """So that a topic created again under the same name is not taken for the old one."""
    opened = Opened(registry.message("FetchResponse")(responses=[]))
    limits = {"wait_ms": 20, "max_bytes": 300, "partition_bytes": 100}
    assert await fetch(opened, "t", {3: 10}, topic_id=b"i" * 16, **limits) == []  # type: ignore[arg-type]
    (topic,) = opened.asked.topics
    assert (bytes(topic.topic_id), [each.fetch_offset for each in topic.partitions]) == (b"i" * 16, [10])
