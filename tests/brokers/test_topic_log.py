"""Requests about the log of an internal topic, and the entries of their responses."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings, ClusterConnection
from kafka_share_proxy.brokers.topic_log import (
    EARLIEST,
    EPOCH_MAX,
    LogSession,
    fetch,
    repeated_fetch,
    request_offsets,
)
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost
from kafka_share_proxy.wire.values import Address


class Opened:
    """A connection to the leader."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self.requested: Any = None

    async def send_request(self, key: int, query: Any, version: int) -> Any:
        self.requested = registry.request(key, version).decode(registry.request(key, version).encode(query))
        return self._response


async def test_offsets_of_every_partition_errors_included() -> None:
    response = registry.message("ListOffsetsResponse")
    entries = [response.ListOffsetsPartitionResponse(partition_index=n, error_code=6 * n, offset=7) for n in (0, 1)]
    opened = Opened(response(topics=[response.ListOffsetsTopicResponse(name="t", partitions=entries)]))
    responses = await request_offsets(opened, "t", [0, 1], EARLIEST)  # type: ignore[arg-type]
    assert [(entry.partition_index, entry.error_code, entry.offset) for entry in responses] == [(0, 0, 7), (1, 6, 7)]
    (topic,) = opened.requested.topics
    assert (topic.name, [(p.partition_index, p.timestamp) for p in topic.partitions]) == ("t", [(0, -2), (1, -2)])


async def test_fetch_goes_by_name_without_a_session() -> None:
    response = registry.message("FetchResponse")
    entries = [response.PartitionData(partition_index=n, high_watermark=0, records=None) for n in (3, 5)]
    opened = Opened(response(responses=[response.FetchableTopicResponse(topic="t", partitions=entries)]))
    limits = {"wait_ms": 20, "max_bytes": 300, "partition_bytes": 100}
    responses = await fetch(opened, "t", {3: 10, 5: 0}, **limits)  # type: ignore[arg-type]  # it has all methods used here
    assert [entry.partition_index for entry in responses] == [3, 5]
    request = opened.requested
    assert (request.session_id, request.session_epoch, request.max_wait_ms, request.max_bytes) == (0, -1, 20, 300)
    (topic,) = request.topics
    requested = [(each.partition, each.fetch_offset, each.partition_max_bytes) for each in topic.partitions]
    assert (topic.topic, requested) == ("t", [(3, 10, 100), (5, 0, 100)])


async def test_fetch_goes_by_topic_id_where_it_is_known() -> None:
    """So that a topic created again under the same name is not taken for the old one."""
    opened = Opened(registry.message("FetchResponse")(responses=[]))
    limits = {"wait_ms": 20, "max_bytes": 300, "partition_bytes": 100}
    assert await fetch(opened, "t", {3: 10}, topic_id=b"i" * 16, **limits) == []  # type: ignore[arg-type]
    (topic,) = opened.requested.topics
    assert (bytes(topic.topic_id), [each.fetch_offset for each in topic.partitions]) == (b"i" * 16, [10])


class Sessions:
    """A leader with fetch sessions."""

    def __init__(self) -> None:
        self.sessions: set[int] = set()
        self.has_room = True
        self.requests: list[tuple[int, int, dict[int, int], list[int]]] = []
        """(session id, epoch, position by partition, forgotten partitions)"""

    async def send_request(self, key: int, query: Any, version: int) -> Any:
        requested = registry.request(key, version).decode(registry.request(key, version).encode(query))
        positions = {each.partition: each.fetch_offset for topic in requested.topics for each in topic.partitions}
        forgotten = [each for topic in requested.forgotten_topics_data for each in topic.partitions]
        self.requests.append((requested.session_id, requested.session_epoch, positions, forgotten))
        response = registry.message("FetchResponse")
        if requested.session_epoch == 0:
            session_id = len(self.requests) if self.has_room else 0
            self.sessions |= {session_id} if session_id else set()
            entries = [
                response.PartitionData(partition_index=each, high_watermark=0, records=None) for each in positions
            ]
            topics = [response.FetchableTopicResponse(topic="t", partitions=entries)]
            return response(session_id=session_id, responses=topics)
        if requested.session_id in self.sessions:
            return response(session_id=requested.session_id, responses=[])
        return response(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])


class Repeating(ClusterConnection):
    """A connection on which the loop can repeat requests."""

    @property
    def repeating(self) -> Any:
        return object(), 0


async def fetched(leader: Sessions, session: LogSession, positions: dict[int, int]) -> list[int]:
    limits = {"wait_ms": 20, "max_bytes": 300, "partition_bytes": 100}
    entries = await fetch(leader, "t", positions, session=session, **limits)  # type: ignore[arg-type]
    return [entry.partition_index for entry in entries]


async def test_fetch_session_names_only_changed_positions() -> None:
    """KIP-227: complete first, then moved, added and forgotten partitions, with the next epoch each time."""
    leader, session = Sessions(), LogSession()
    assert await fetched(leader, session, {3: 10, 5: 0}) == [3, 5]
    assert await fetched(leader, session, {3: 10, 5: 0}) == []
    assert await fetched(leader, session, {3: 11, 6: 0}) == []
    assert leader.requests == [(0, 0, {3: 10, 5: 0}, []), (1, 1, {}, []), (1, 2, {3: 11, 6: 0}, [5])]
    session.epoch = EPOCH_MAX
    await fetched(leader, session, {3: 11, 6: 0})
    assert session.epoch == 1


async def test_evicted_fetch_session_is_replaced_immediately() -> None:
    leader, session = Sessions(), LogSession()
    await fetched(leader, session, {3: 10})
    leader.sessions.clear()
    assert await fetched(leader, session, {3: 10, 5: 0}) == [3, 5]
    assert leader.requests[1:] == [(1, 1, {5: 0}, []), (0, 0, {3: 10, 5: 0}, [])]


async def test_leader_without_room_for_a_fetch_session_gets_complete_requests() -> None:
    leader, session = Sessions(), LogSession()
    leader.has_room = False
    for _ in range(2):
        assert await fetched(leader, session, {3: 10}) == [3]
    assert leader.requests == 2 * [(0, 0, {3: 10}, [])]


async def test_a_fetch_without_a_session_is_not_repeated_by_the_loop() -> None:
    ours, _ = trio.testing.memory_stream_pair()
    opened = ClusterConnection(Address("b", 1), ours, ClusterClientSettings())
    limits = {"wait_ms": 20, "max_bytes": 300, "responded": lambda _sent: None, "late_s": 1.0}
    assert repeated_fetch(opened, LogSession(), **limits) is None
    opened_by_loop = Repeating(Address("b", 1), ours, ClusterClientSettings())
    assert repeated_fetch(opened_by_loop, LogSession(), **limits) is None
    assert repeated_fetch(opened_by_loop, LogSession(session_id=7, epoch=1), **limits) is not None


async def test_refused_fetch_session_is_an_error() -> None:
    opened = Opened(registry.message("FetchResponse")(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, responses=[]))
    with pytest.raises(UpstreamLost, match="UNKNOWN_SERVER_ERROR"):
        await fetched(opened, LogSession(), {3: 10})  # type: ignore[arg-type]
