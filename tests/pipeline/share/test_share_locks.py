"""The share session with one node: renewals, repetitions, and losses (pipeline/README.md rules 43 and 45)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.pipeline.kafka.cluster import ReadRefused
from kafka_share_proxy.pipeline.share import share_locks
from kafka_share_proxy.pipeline.share.share_locks import LockSession, ShareMemberName
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost
from kafka_share_proxy.wire.values import TopicPartition

from tests.support.raw import until

ID = bytes(range(16))
PLACES = {TopicPartition("orders", number): ID for number in (0, 1)}
SPANS = [OffsetSpan(0, 10), OffsetSpan(10, 20), OffsetSpan(30, 40)]
HELD = {place: list(SPANS) for place in PLACES}
Codes = Callable[[int, list[tuple[int, int]], int], int]
"""(partition, its first and last offsets, type) -> the code of the response."""


class Node:
    """A connection to a node that gives SPANS of each partition once."""

    def __init__(self, codes: Codes, version: int = 2, lock_ms: int = 60_000) -> None:
        self.codes, self.lock_ms, self.most = codes, lock_ms, version
        self.reported: list[Any] = []
        self.is_open, self.is_lost = True, False
        self.fetch_code = 0

    def version(self, _key: int, most: int) -> int:
        return min(most, self.most)

    def send_request(self, key: int, request: Any, version: int) -> Any:
        assert version == self.most
        if self.is_lost:
            raise UpstreamLost("the node is gone")
        self.reported.append(request)
        return self._fetch(request) if key == ApiKey.SHARE_FETCH else self._acknowledge(request)

    def close(self) -> None:
        self.is_open = False

    def _fetch(self, request: Any) -> messages.ShareFetchResponse:
        response = messages.ShareFetchResponse
        acquired = [response.AcquiredRecords(first_offset=each.start, last_offset=each.last) for each in SPANS]
        parts = [
            response.PartitionData(partition_index=each, error_code=self.fetch_code, acquired_records=acquired)
            for each in (0, 1)
        ]
        topic = response.ShareFetchableTopicResponse(topic_id=ID, partitions=parts)
        assert request.max_bytes == 4096
        return response(acquisition_lock_timeout_ms=self.lock_ms, responses=[topic])

    def _acknowledge(self, request: Any) -> messages.ShareAcknowledgeResponse:
        response = messages.ShareAcknowledgeResponse
        topics = []
        for topic in request.topics:
            parts = []
            for entry in topic.partitions:
                batches = [(each.first_offset, each.last_offset) for each in entry.acknowledgement_batches]
                (kind,) = {each for batch in entry.acknowledgement_batches for each in batch.acknowledge_types}
                code = self.codes(entry.partition_index, batches, kind)
                parts.append(response.PartitionData(partition_index=entry.partition_index, error_code=code))
            topics.append(response.ShareAcknowledgeTopicResponse(topic_id=topic.topic_id, partitions=parts))
        return response(acquisition_lock_timeout_ms=self.lock_ms, responses=topics)

    def acknowledged(self) -> list[Any]:
        return [each for each in self.reported if isinstance(each, messages.ShareAcknowledgeRequest)]


Opened = Callable[..., tuple[LockSession, Node, list[str]]]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Makes sessions that hold SPANS of both partitions, and ends them."""
    sessions: list[LockSession] = []

    def make(codes: Codes = lambda *_: 0, **options: int) -> tuple[LockSession, Node, list[str]]:
        notes: list[str] = []
        node: Any = Node(codes, **options)
        session = LockSession(1, lambda: node, ShareMemberName("g", "m"), 4096, notes.append)
        sessions.append(session)
        assert len(session.fetch(PLACES, 100, 0.0).acquired) == 6
        return session, node, notes

    yield make
    for session in sessions:
        session.close()


def refuses(partition: int, offset: int, code: int) -> Codes:
    """Return a node that refuses every request with this offset."""

    def judged(number: int, batches: list[tuple[int, int]], _kind: int) -> int:
        has = number == partition and any(first <= offset <= last for first, last in batches)
        return code if has else ErrorCode.NONE

    return judged


def test_neighbours_are_acknowledged_as_one_range(opened: Opened) -> None:
    session, node, _ = opened()
    assert session.acknowledge(AcknowledgeType.ACCEPT, HELD) == {}
    (request,) = node.acknowledged()
    assert request.share_session_epoch == 1
    assert not request.is_renew_ack
    batches = [
        [(b.first_offset, b.last_offset) for b in e.acknowledgement_batches] for e in request.topics[0].partitions
    ]
    assert batches == [[(0, 19), (30, 39)]] * 2
    assert session.is_idle


def test_a_refused_range_is_divided_into_halves(opened: Opened) -> None:
    session, node, notes = opened(refuses(0, 15, ErrorCode.INVALID_RECORD_STATE))
    place = TopicPartition("orders", 0)
    assert session.acknowledge(AcknowledgeType.ACCEPT, HELD) == {place: [OffsetSpan(10, 20)]}
    assert len(node.acknowledged()) == 5  # all; halves of one, a request for each; halves of that half
    assert (session.lost, session.is_idle) == (10, True)
    assert notes == ["10 offsets of orders-0 from 10 on were no longer held"]


def test_requests_for_one_acknowledgement_are_bounded(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_locks, "REQUESTS_MAX", 3)
    session, node, _ = opened(lambda *_: ErrorCode.INVALID_RECORD_STATE)
    refused = session.acknowledge(AcknowledgeType.ACCEPT, HELD)
    assert {place: sorted(spans) for place, spans in refused.items()} == HELD
    assert len(node.acknowledged()) == 3


def test_unstored_acknowledgements_are_sent_again(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_locks, "REPEAT_S", 0.01)
    responses = iter([ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR, 0, 0, 0])
    session, node, _ = opened(lambda *_: next(responses))
    assert session.acknowledge(AcknowledgeType.ACCEPT, HELD) == {}
    assert len(node.acknowledged()) == 2
    always, node, _ = opened(lambda *_: ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert always.acknowledge(AcknowledgeType.ACCEPT, HELD) == HELD
    assert len(node.acknowledged()) == share_locks.REPEATS_MAX + 1


def test_locks_are_renewed_until_they_are_settled(opened: Opened) -> None:
    session, node, _ = opened(lock_ms=50)
    until(lambda: session.renewals >= 3, "renewals")
    assert all(each.is_renew_ack for each in node.acknowledged())
    assert session.acknowledge(AcknowledgeType.ACCEPT, HELD) == {}
    count = session.renewals
    threading.Event().wait(0.1)
    assert session.renewals == count


def test_a_lock_that_cannot_be_renewed_is_lost_alone(opened: Opened) -> None:
    session, _, notes = opened(refuses(1, 35, ErrorCode.INVALID_RECORD_STATE), lock_ms=50)
    until(lambda: session.lost == 10, "the lock to be lost")
    assert notes == ["10 offsets of orders-1 from 30 on were no longer held"]
    refused = session.acknowledge(AcknowledgeType.ACCEPT, HELD)
    assert refused == {TopicPartition("orders", 1): [OffsetSpan(30, 40)]}


def test_no_renewal_is_sent_to_servers_without_them(opened: Opened) -> None:
    session, node, notes = opened(version=1, lock_ms=20)
    threading.Event().wait(0.1)
    assert node.acknowledged() == []
    assert notes == ["node 1 cannot renew locks (ShareAcknowledge v1): a batch may not take longer than 20 ms"]
    assert session.acknowledge(AcknowledgeType.ACCEPT, HELD) == {}


def test_with_the_connection_all_locks_are_lost(opened: Opened) -> None:
    session, node, notes = opened()
    node.is_lost = True
    assert session.acknowledge(AcknowledgeType.ACCEPT, HELD) == HELD
    assert (session.is_over, session.lost, node.is_open) == (True, 60, False)
    assert notes == ["the share session with node 1 ended, with 60 locks: the node is gone"]
    assert session.fetch(PLACES, 100, 0.0).troubles == ["the share session with node 1 has ended"]


def test_missing_rights_are_a_permanent_error(opened: Opened) -> None:
    session, node, _ = opened()
    node.fetch_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(ReadRefused, match="orders-0: TOPIC_AUTHORIZATION_FAILED"):
        session.fetch(PLACES, 100, 0.0)
    assert session.is_over


def test_at_the_end_locks_are_released_and_the_group_is_left(opened: Opened) -> None:
    session, node, notes = opened()
    with closing(session):
        pass
    assert [each.share_session_epoch for each in node.acknowledged()] == [-1]
    assert (notes, node.is_open) == ([], False)


def test_removed_offsets_are_subtracted_from_ranges() -> None:
    assert share_locks.subtract([OffsetSpan(0, 10), OffsetSpan(20, 30)], [OffsetSpan(5, 22)]) == [(0, 5), (22, 30)]
