"""Sessions with two scripted brokers: numbers, refusals, leaders that move, what goes in which request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka_share_proxy.consumer.events import BackgroundError, CallDone, LeaveGroup
from kafka_share_proxy.consumer.requests import FailureKind, RequestFailure, UnsentRequest
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.consumer.share.share_requests import ACQUIRED_MAX, MISLED_S
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.share_world import ACCEPT, RELEASE, RENEW, FakeSession, ShareKafka, ShareMember
from tests.consumer.world import World

P0, P1, P2 = (TopicPartition("a", number) for number in range(3))
LOST = RequestFailure(FailureKind.DISCONNECTED, "cut")


def play(partitions: int = 1, records: int = 10, **options: Any) -> tuple[ShareKafka, ShareMember]:
    kafka = ShareKafka(a=partitions)
    for number in range(partitions):
        kafka.produce(TopicPartition("a", number), records)
    return kafka, ShareMember(World(kafka), "m", **options)


def acknowledge(member: ShareMember, part: Any, kind: int, *offsets: int) -> None:
    for offset in offsets:
        member.core.acknowledge(part.partition, offset, part.delivery, AcknowledgeType(kind))


def wire(kafka: ShareKafka, begin: int = 0) -> list[str]:
    return [each.split()[1] for each in kafka.wire[begin:] if "Share" in each and "Heartbeat" not in each]


def respond_once(kafka: ShareKafka, api: str, response: Callable[[UnsentRequest], Any]) -> None:
    kafka.faults.setdefault(api, []).append(response)


def refuse(code: int) -> Callable[[UnsentRequest], Any]:
    return lambda request: registry.message(f"{request.api}Response")(error_code=code)


def acknowledgements(kafka: ShareKafka) -> list[tuple[int, int]]:
    return [(offset, kind) for _, _, offset, kind in kafka.share.acknowledged]


# What goes in which request


def test_acknowledgements_are_sent_with_the_next_fetch() -> None:
    kafka, member = play()
    (part,) = member.poll().parts
    acknowledge(member, part, ACCEPT, *range(9))
    begin = len(kafka.wire)
    member.world.run(3)
    assert wire(kafka, begin) == []
    member.poll(1)
    assert set(wire(kafka, begin)) == {"ShareFetch"}
    assert acknowledgements(kafka) == [(offset, ACCEPT) for offset in range(9)]
    assert [result.error for result in member.results] == [None]


def test_awaited_acknowledgements_have_their_own_request() -> None:
    kafka, member = play()
    (part,) = member.poll().parts
    acknowledge(member, part, ACCEPT, 0)
    begin = len(kafka.wire)
    member.core.send_now()
    member.world.run(0.1)
    assert wire(kafka, begin) == ["ShareAcknowledge"]
    assert acknowledgements(kafka) == [(0, ACCEPT)]


def test_renewals_never_wait_in_a_fetch() -> None:
    """A fetch with IsRenewAck would bring no records either (KIP-1222)."""
    kafka, member = play()
    (part,) = member.poll().parts
    acknowledge(member, part, RENEW, 3)
    acknowledge(member, part, ACCEPT, 4)
    begin = len(kafka.wire)
    member.poll(0.2)
    assert wire(kafka, begin)[:2] == ["ShareAcknowledge", "ShareFetch"]
    assert acknowledgements(kafka) == [(3, RENEW), (4, ACCEPT)]


def test_acknowledgements_of_a_revoked_partition_are_still_sent() -> None:
    kafka, member = play(2)
    reported = 0
    while reported < 20:
        for part in member.poll().parts:
            acknowledge(member, part, ACCEPT, *part.records.positions.offsets)
            reported += len(part.records)
    kafka.share.may_read = lambda _, partition: partition == P0
    member.world.run(3)
    assert kafka.share.share(P1).settled < set(range(10))
    member.poll(1)
    assert kafka.share.share(P1).settled == set(range(10))


def test_nothing_is_fetched_while_the_application_does_not_wait() -> None:
    kafka, member = play(2)
    member.poll()
    member.world.run(1)
    begin = len(kafka.wire)
    kafka.produce(P0, 5)
    member.world.run(10)
    assert wire(kafka, begin) == []


def test_no_records_are_returned_beyond_the_limit_of_the_application() -> None:
    kafka, member = play(1, 4, held_records_max=6, max_poll_records=3)
    assert len(member.offsets()) == 3  # the batch of 4, of which 3 are acquired
    begin = len(kafka.wire)
    assert member.offsets() == [(0, 3, 1)]
    assert len(wire(kafka, begin)) == 1
    kafka.produce(P0, 5)
    begin = len(kafka.wire)
    assert member.offsets() == []
    assert wire(kafka, begin) == []


def test_the_mode_record_limit_fetches_from_one_node_at_a_time() -> None:
    _kafka, member = play(2, 10, acquire_mode="record_limit", max_poll_records=4)
    sizes = [len(member.offsets()) for _ in range(6)]
    assert sum(sizes) == 20
    assert max(sizes) == 4


def test_buffered_records_of_revoked_partitions_are_released() -> None:
    kafka, member = play(2)
    member.core.begin_poll(member.world.now)
    member.core.is_polling = True
    member.world.run(2)
    member.core.is_polling = False
    assert member.core.has_news
    kafka.share.may_read = lambda _, partition: partition == P0
    member.world.run(3)
    assert kafka.share.shares[P1].locks == {}
    assert {(offset, kind) for _, place, offset, kind in kafka.share.acknowledged if place == P1} == {
        (offset, RELEASE) for offset in range(10)
    }
    assert {partition for partition, _, _ in member.offsets()} == {0}


def test_buffered_records_are_not_returned_after_their_lock() -> None:
    kafka, member = play()
    kafka.share.lock_s = 5.0
    member.core.begin_poll(member.world.now)
    member.core.is_polling = True
    member.world.run(2)
    member.core.is_polling = False
    member.world.run(6)
    assert [count for _, _, count in member.offsets()] == [2] * 10


# Refusals


@pytest.mark.parametrize("api", ["ShareFetch", "ShareAcknowledge"])
def test_a_wrong_number_opens_the_session_anew_and_nothing_is_lost(api: str) -> None:
    """123: the broker did nothing, and keeps the locks."""
    kafka, member = play()
    (part,) = member.poll().parts
    acknowledge(member, part, ACCEPT, *range(10))
    respond_once(kafka, api, refuse(ErrorCode.INVALID_SHARE_SESSION_EPOCH))
    if api == "ShareAcknowledge":
        member.core.send_now()
        member.world.run(1)
    else:
        member.poll(1)
    assert acknowledgements(kafka) == [(offset, ACCEPT) for offset in range(10)]
    assert [result.error for result in member.results] == [None]
    kafka.produce(P0, 1)
    assert member.offsets() == [(0, 10, 1)]


def test_locks_end_with_a_lost_session() -> None:
    """122: the acknowledgements have no effect, the application is notified, and the records are delivered again."""
    kafka, member = play()
    (part,) = member.poll().parts
    acknowledge(member, part, ACCEPT, 0, 1)
    kafka.share.end_session(2 - 1, "m")
    assert [(offset, count) for _, offset, count in member.offsets()] == [(offset, 2) for offset in range(10)]
    (result,) = member.results
    assert result.error is not None
    assert dict(result.types) == {0: AcknowledgeType.ACCEPT, 1: AcknowledgeType.ACCEPT}
    assert acknowledgements(kafka) == []


def test_a_connection_that_ends_is_a_session_that_ends() -> None:
    kafka, member = play()
    (part,) = member.poll().parts
    lost: list[int] = []
    member.core.begin_work(P0, 3, part.delivery, lambda: lost.append(3), member.world.now)

    def cut(_: UnsentRequest) -> Any:
        kafka.share.end_session(1, "m")
        return LOST

    respond_once(kafka, "ShareFetch", cut)
    assert len(member.offsets()) == 10
    assert lost == [3]
    assert member.core.acknowledge(P0, 4, part.delivery, AcknowledgeType.ACCEPT) is False


def test_too_many_sessions_are_waited_for() -> None:
    kafka, member = play()
    for _ in range(3):
        respond_once(kafka, "ShareFetch", refuse(ErrorCode.SHARE_SESSION_LIMIT_REACHED))
    assert len(member.offsets()) == 10
    assert member.events == []


def test_a_refusal_of_the_whole_is_reported_and_tried_again_after_a_pause() -> None:
    kafka, member = play()
    respond_once(kafka, "ShareFetch", refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    begin = member.world.now
    assert len(member.offsets()) == 10
    assert member.world.now - begin > 0.1
    assert [str(each.error) for each in member.events] == ["ShareFetch of node 1: GROUP_AUTHORIZATION_FAILED"]


def test_the_result_reports_a_broker_without_renewals_and_the_rest_is_sent() -> None:
    """R003-6"""
    kafka, member = play()
    (part,) = member.poll().parts
    acknowledge(member, part, RENEW, 3)
    acknowledge(member, part, ACCEPT, 4)
    respond_once(kafka, "ShareAcknowledge", lambda _: RequestFailure(FailureKind.UNSUPPORTED_VERSION, "version 1"))
    member.poll(1)
    assert acknowledgements(kafka) == [(4, ACCEPT)]
    assert [(dict(r.types), getattr(r.error, "code", None)) for r in member.results] == [
        ({3: 4}, ErrorCode.UNSUPPORTED_VERSION),
        ({4: 1}, None),
    ]
    assert member.core.held.find(P0, 3, part.delivery).lost is None
    assert member.events == []


def test_a_broker_without_share_fetch_is_an_error() -> None:
    kafka, member = play()
    respond_once(kafka, "ShareFetch", lambda _: RequestFailure(FailureKind.UNSUPPORTED_VERSION, "no ShareFetch"))
    member.offsets()
    assert isinstance(member.events[0], BackgroundError)
    assert "no ShareFetch" in str(member.events[0].error)


def test_acknowledgements_that_the_broker_could_not_store_are_sent_again() -> None:
    kafka, member = play()
    (part,) = member.poll().parts
    acknowledge(member, part, ACCEPT, 0)
    kafka.share.store_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    member.core.send_now()
    member.world.run(1)
    assert acknowledgements(kafka) == [(0, ACCEPT)]
    assert [result.error for result in member.results] == [None]


def test_an_acknowledgement_without_a_response_counts_as_refused() -> None:
    kafka, member = play()
    (part,) = member.poll().parts
    acknowledge(member, part, ACCEPT, 0)
    respond_once(kafka, "ShareAcknowledge", lambda _: registry.message("ShareAcknowledgeResponse")())
    member.core.send_now()
    member.world.run(1)
    assert member.results[0].error.code is ErrorCode.INVALID_RECORD_STATE


# Leaders


def test_a_leader_that_moves_is_followed_by_its_hint() -> None:
    kafka, member = play()
    (part,) = member.poll().parts
    acknowledge(member, part, ACCEPT, 0, 1)
    kafka.move(P0, 2)
    got = [(offset, count) for _, offset, count in member.offsets()]
    assert got == [(offset, 2) for offset in range(10)]
    assert member.results[0].error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (2, "m") in kafka.share.sessions


def test_a_node_that_names_itself_and_does_not_lead_is_reported_after_a_while() -> None:
    """All connections go to one listener of a proxy, for example, so that the broker is unknown."""
    kafka, member = play()

    def misled(request: UnsentRequest) -> Any:
        response = registry.message("ShareFetchResponse")
        kafka.share.sessions.setdefault((1, "m"), FakeSession(0, {P0})).epoch = request.message.share_session_epoch + 1
        leader = response.LeaderIdAndEpoch(leader_id=1, leader_epoch=5)
        data = response.PartitionData(
            partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=leader
        )
        topic = response.ShareFetchableTopicResponse(topic_id=kafka.ids["a"], partitions=[data])
        return response(acquisition_lock_timeout_ms=30_000, responses=[topic])

    kafka.faults["ShareFetch"] = [misled] * 1000
    begin = member.world.now
    while not (errors := [each for each in member.events if isinstance(each, BackgroundError)]):
        assert member.offsets(0.2) == []
        assert member.world.now - begin < 2 * MISLED_S
    assert member.world.now - begin >= MISLED_S
    assert "the address of node 1 does not lead to that node" in str(errors[0].error)
    kafka.faults.clear()
    assert len(member.offsets(2)) == 10


def test_an_unreadable_partition_does_not_block_the_others() -> None:
    kafka, member = play(3)
    group = kafka.share

    def without_rights(request: UnsentRequest) -> Any:
        if request.node_id != 1:
            return None
        response = registry.message("ShareFetchResponse")
        data = response.PartitionData(partition_index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        group.sessions[1, "m"] = FakeSession(1, {P0, P2})
        topic = response.ShareFetchableTopicResponse(topic_id=kafka.ids["a"], partitions=[data])
        return response(acquisition_lock_timeout_ms=30_000, responses=[topic])

    respond_once(kafka, "ShareFetch", without_rights)
    begin = member.world.now
    got: dict[int, float] = {}
    for _ in range(20):
        got |= {partition: got.get(partition, member.world.now - begin) for partition, _, _ in member.offsets(0.2)}
    assert got.keys() == {0, 1, 2}
    assert max(got[1], got[2]) < 0.9 < got[0]
    errors = [str(each.error) for each in member.events if isinstance(each, BackgroundError)]
    assert errors == ["ShareFetch of a-0: TOPIC_AUTHORIZATION_FAILED"]
    assert group.sessions[1, "m"].partitions == {P0, P2}


@pytest.mark.parametrize("acquired", [[(5, 3)], [(3, 5), (5, 7)], [(0, ACQUIRED_MAX)]])
def test_acquired_offsets_that_cannot_be_right_are_an_error(acquired: list[tuple[int, int]]) -> None:
    kafka, member = play()

    def wrong(_: UnsentRequest) -> Any:
        response = registry.message("ShareFetchResponse")
        listed = [response.AcquiredRecords(first_offset=a, last_offset=b, delivery_count=1) for a, b in acquired]
        data = response.PartitionData(partition_index=0, records=kafka.records[P0][0], acquired_records=listed)
        topic = response.ShareFetchableTopicResponse(topic_id=kafka.ids["a"], partitions=[data])
        return response(acquisition_lock_timeout_ms=30_000, responses=[topic])

    respond_once(kafka, "ShareFetch", wrong)
    member.offsets(1)
    assert "ShareFetch of a-0" in str(member.events[0].error)


# The end


def test_at_the_end_due_acknowledgements_are_sent_and_the_rest_released() -> None:
    kafka, member = play(2)
    parts = [*member.poll().parts, *member.poll(0.2).parts]
    acknowledge(member, parts[0], ACCEPT, 0)
    acknowledge(member, parts[0], RENEW, 1)
    member.core.handle(LeaveGroup(9), member.world.now)
    member.world.run(2)
    assert [each for each in member.core.events() if isinstance(each, CallDone)] == [CallDone(call_id=9)]
    assert acknowledgements(kafka) == [(0, ACCEPT)]
    assert kafka.share.sessions == {}
    assert all(share.locks == {} for share in kafka.share.shares.values())
    assert kafka.share.members == {}
    assert member.core.held.count == 0


def test_late_acknowledgements_are_sent_before_the_end_in_their_own_request() -> None:
    kafka, member = play()
    kafka.share.lock_s = 5.0
    (part,) = member.poll().parts
    acknowledge(member, part, ACCEPT, 0)
    member.world.run(6)
    kafka.produce(P0, 1)
    fresh = next(each for each in member.poll().parts if 10 in each.records.positions.offsets)
    acknowledge(member, fresh, ACCEPT, 10)
    member.core.handle(LeaveGroup(9), member.world.now)
    member.world.run(2)
    assert (10, ACCEPT) in acknowledgements(kafka)
    assert kafka.share.sessions == {}
