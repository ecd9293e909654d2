"""ShareFetch and ShareAcknowledge as they go over the wire."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.consumer.share.share_messages import (
    RECORD_LIMIT,
    RECORD_LIMIT_MODE,
    RENEWING,
    VERSIONS,
    ShareMessages,
)
from kafka_share_proxy.consumer.share.share_options import ShareConsumerOptions
from kafka_share_proxy.consumer.share.share_session import ShareSession
from kafka_share_proxy.wire.redelivery_delay import delay_ms_in
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.messages import round_trip

P0, P1, Q0 = TopicPartition("p", 0), TopicPartition("p", 1), TopicPartition("q", 0)
P, Q = b"p" * 16, b"q" * 16
ACCEPT, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RENEW
SENDER: Any = None


def messages(**options: Any) -> ShareMessages:
    return ShareMessages(ShareConsumerOptions(group_id="g", **options), "m")


def session(**partitions: bytes) -> ShareSession:
    share_session = ShareSession(1)
    share_session.advance({P0: P, P1: P})
    return share_session


def listed(message: Any) -> list[tuple[bytes, int, list[tuple[int, int, list[int]]]]]:
    return [
        (
            bytes(topic.topic_id),
            each.partition_index,
            [(b.first_offset, b.last_offset, list(b.acknowledge_types)) for b in each.acknowledgement_batches],
        )
        for topic in message.topics
        for each in topic.partitions
    ]


def forgotten(message: Any) -> list[tuple[bytes, list[int]]]:
    return [(bytes(each.topic_id), list(each.partitions)) for each in message.forgotten_topics_data]


def test_a_fetch_names_what_is_new_and_takes_acknowledgements_along() -> None:
    request = round_trip(messages().fetch(session(), {P0: P, Q0: Q}, {P0: {3: ACCEPT, 4: ACCEPT}}, 0.5), 2)
    assert listed(request) == [(P, 0, [(3, 4, [1])]), (Q, 0, [])]
    assert forgotten(request) == [(P, [1])]
    assert (request.share_session_epoch, request.max_wait_ms, request.min_bytes, request.max_bytes) == (
        1,
        500,
        1,
        52_428_800,
    )
    assert (request.max_records, request.batch_size, request.share_acquire_mode, request.is_renew_ack) == (
        500,
        500,
        0,
        False,
    )


def test_a_partition_that_is_only_acknowledged_is_forgotten_in_the_same_request() -> None:
    """Every partition in a ShareFetch is read from then on (ShareSessionHandler)."""
    request = round_trip(messages().fetch(session(), {P0: P}, {P1: {9: ACCEPT}}, 0.5), 2)
    assert listed(request) == [(P, 1, [(9, 9, [1])])]
    assert forgotten(request) == [(P, [1])]


def test_without_partitions_it_requests_no_records_and_does_not_wait() -> None:
    request = round_trip(messages().fetch(ShareSession(1), {}, {}, 0.5), 2)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records, request.batch_size) == (
        0,
    ) * 5
    assert (request.share_session_epoch, request.topics) == (0, [])


def test_a_fetch_that_may_wait_less_than_a_millisecond_waits_for_one() -> None:
    """A fetch that does not wait would be repeated without a pause until the renewal is due."""
    assert messages().fetch(session(), {P0: P}, {}, 0.0001).max_wait_ms == 1


def test_the_mode_record_limit_needs_version_2() -> None:
    strict = messages(acquire_mode="record_limit", max_poll_records=7)
    message = strict.fetch(session(), {P0: P}, {}, 0.5)
    assert (message.share_acquire_mode, message.max_records) == (RECORD_LIMIT_MODE, 7)
    assert strict.unsent(SENDER, "ShareFetch", message, session(), None).versions == RECORD_LIMIT
    plain = messages()
    message = plain.fetch(session(), {P0: P}, {}, 0.5)
    assert plain.unsent(SENDER, "ShareFetch", message, session(), None).versions == VERSIONS
    round_trip(message, 1)


def test_renewals_set_their_flag_and_need_version_2() -> None:
    """KIP-1222: mixed with others in one request."""
    message = messages().acknowledge(session(), {P0: {3: ACCEPT, 4: RENEW}, P1: {1: ACCEPT}}, 5)
    assert listed(round_trip(message, 2)) == [(P, 0, [(3, 4, [1, 4])]), (P, 1, [(1, 1, [1])])]
    assert (message.is_renew_ack, message.share_session_epoch) == (True, 5)
    assert messages().unsent(SENDER, "ShareAcknowledge", message, session(), None).versions == RENEWING
    message = messages().acknowledge(session(), {P0: {3: ACCEPT}}, -1)
    assert message.is_renew_ack is False
    request = messages().unsent(SENDER, "ShareAcknowledge", round_trip(message, 1), session(), "context")
    assert (request.versions, request.node_id, request.context) == (VERSIONS, 1, "context")


def test_records_with_different_named_delays_are_different_batches() -> None:
    reported = {P0: dict.fromkeys(range(6), AcknowledgeType.RELEASE) | {5: ACCEPT}}
    delays = {P0: {1: 500, 2: 500, 4: 0}}
    for request in (
        round_trip(messages().acknowledge(session(), reported, 1, delays), 2),
        round_trip(messages().fetch(session(), {P0: P}, reported, 0.5, delays), 2),
    ):
        batches = request.topics[0].partitions[0].acknowledgement_batches
        assert [(b.first_offset, b.last_offset, delay_ms_in(b.unknown_tags)) for b in batches] == [
            (0, 0, None),
            (1, 2, 500),
            (3, 3, None),
            (4, 4, 0),
            (5, 5, None),
        ]
