"""Topic names in audit events: known, else looked up, else the id."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from kafka_share_proxy.app.observing import audit_topics
from kafka_share_proxy.app.observing.audit_topics import RETRY_S, AuditedTopicNames
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost

KNOWN, SEEN, LOST = b"k" * 16, b"s" * 16, b"g" * 16


class Broker:
    """Knows one topic; may be away, or silent."""

    def __init__(self) -> None:
        self.requested: list[set[bytes]] = []
        self.is_away = self.is_silent = False
        self.closed = 0

    async def send_request(self, key: int, query: Any) -> tuple[Any, None]:
        self.requested.append({bytes(topic.topic_id) for topic in query.topics})
        if self.is_silent:
            await trio.sleep_forever()
        if self.is_away:
            raise UpstreamLost("nobody")
        entry = messages.MetadataResponse.MetadataResponseTopic
        topic_entries = [
            entry(topic_id=topic_id, name="orders")
            if topic_id == KNOWN
            else entry(topic_id=topic_id, name=None, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
            for topic_id in self.requested[-1]
        ]
        return messages.MetadataResponse(topics=topic_entries), None

    async def aclose(self) -> None:
        self.closed += 1


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def names(broker: Broker) -> AuditedTopicNames:
    return AuditedTopicNames({SEEN: "seen"}.get, broker)  # type: ignore[arg-type]


async def test_an_unknown_topic_id_is_requested_once(
    names: AuditedTopicNames, broker: Broker, autojump_clock: Any
) -> None:
    for _ in range(2):
        await names.learn([SEEN, KNOWN, LOST])
    assert broker.requested == [{KNOWN, LOST}]
    assert [names.name(each) for each in (SEEN, KNOWN, LOST)] == ["seen", "orders", LOST.hex()]


async def test_a_topic_without_a_name_is_requested_again_later(
    names: AuditedTopicNames, broker: Broker, autojump_clock: Any
) -> None:
    broker.is_away = True
    await names.learn([KNOWN])
    broker.is_away = False
    await names.learn([KNOWN])
    assert names.name(KNOWN) == KNOWN.hex()
    await trio.sleep(RETRY_S)
    await names.learn([KNOWN])
    assert (names.name(KNOWN), len(broker.requested)) == ("orders", 2)


async def test_a_silent_broker_holds_up_events_for_a_moment_only(
    names: AuditedTopicNames, broker: Broker, autojump_clock: Any
) -> None:
    broker.is_silent = True
    began = trio.current_time()
    await names.learn([KNOWN])
    assert trio.current_time() - began == audit_topics.QUERY_S
    assert broker.closed == 1


async def test_requests_and_memory_are_bounded(
    names: AuditedTopicNames, broker: Broker, autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_topics, "QUERIED_MAX", 3)
    monkeypatch.setattr(audit_topics, "NAMES_MAX", 4)
    for start in range(0, 30, 5):
        await names.learn([b"%016d" % number for number in range(start, start + 5)])
        assert len(names._names) + len(names._queried_at) <= 4 + 3
    assert max(map(len, broker.requested)) == 3
