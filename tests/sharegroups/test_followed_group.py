"""Requests of a group on the brokers, followed while it is taken back."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.sharegroups import followed_group
from kafka_share_proxy.sharegroups.followed_group import FollowedGroup
from kafka_share_proxy.sharegroups.model import forwarded_locks
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

from tests.sharegroups.test_placement import FORWARDED, Mixed, reported
from tests.support.worlds import ACCEPT, RELEASE, RENEW

GROUP, LOCK_S = "g", 4.0


class Followed(Mixed):
    """The brokers serve the group, and its requests are followed. The clock is at 0."""

    def __init__(self) -> None:
        super().__init__()
        self.group = FollowedGroup(self.world.services, LOCK_S)
        self.world.services.followed[GROUP] = self.group
        self.place = TopicIdPartition(self.topic.topic_id, 0)

    def begin_fetch(self, *acquired: tuple[int, int], acks: Any = (), code: int = 0, epoch: int = 1) -> Any:
        """Send a ShareFetch. The broker gives it these ranges, and this code for the acknowledgements."""
        response = messages.ShareFetchResponse
        ranges = [response.AcquiredRecords(first_offset=a, last_offset=b, delivery_count=1) for a, b in acquired]
        part = response.PartitionData(
            partition_index=0, acquired_records=ranges, records=b"", acknowledge_error_code=code
        )
        topic = response.ShareFetchableTopicResponse(topic_id=self.place.topic_id, partitions=[part])
        self.upstream[78] = response(acquisition_lock_timeout_ms=round(LOCK_S * 1000), responses=[topic])
        request = messages.ShareFetchRequest
        batches = [request.AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=k) for a, b, k in acks]
        fetched = request.FetchPartition(partition_index=0, acknowledgement_batches=batches)
        topics = [request.FetchTopic(topic_id=self.place.topic_id, partitions=[fetched])]
        identity = {"group_id": GROUP, "member_id": "m", "share_session_epoch": epoch, "topics": topics}
        return self.send(78, 2, max_wait_ms=400, max_bytes=1 << 30, max_records=500, **identity)

    def fetch(self, *acquired: tuple[int, int], **options: Any) -> Any:
        return reported(self.begin_fetch(*acquired, **options), 78, 2)

    def acknowledge(self, first: int, last: int, *kinds: int, code: int = 0) -> Any:
        response = messages.ShareAcknowledgeResponse
        part = response.PartitionData(partition_index=0, error_code=code)
        topic = response.ShareAcknowledgeTopicResponse(topic_id=self.place.topic_id, partitions=[part])
        self.upstream[79] = response(responses=[topic])
        request = messages.ShareAcknowledgeRequest
        batch = request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(kinds))
        acked = request.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
        topics = [request.AcknowledgeTopic(topic_id=self.place.topic_id, partitions=[acked])]
        return self.send_request(79, 2, group_id=GROUP, member_id="m", share_session_epoch=2, topics=topics)

    def locked(self) -> list[tuple[int, int]]:
        self.group.locks.expire(self.world.timers.now())
        return [(first, last) for _, first, last in self.group.locks.bounds()]


def test_acquired_records_are_locked_until_they_are_settled() -> None:
    followed = Followed()
    assert followed.fetch((0, 9)).error_code == 0
    followed.acknowledge(0, 4, ACCEPT)
    assert followed.locked() == [(5, 9)]
    followed.fetch(acks=[(5, 7, [RELEASE, ACCEPT, RELEASE])])
    assert followed.locked() == [(8, 9)]
    followed.fetch(epoch=-1)
    assert followed.locked() == []


def test_refused_acknowledgements_settle_nothing() -> None:
    followed = Followed()
    followed.fetch((0, 9))
    followed.acknowledge(0, 9, ACCEPT, code=ErrorCode.INVALID_RECORD_STATE)
    followed.fetch(acks=[(0, 9, [ACCEPT])], code=ErrorCode.INVALID_RECORD_STATE)
    assert followed.locked() == [(0, 9)]


def test_locks_end_by_themselves_and_renewed_ones_later() -> None:
    """Also a lock from before the group was followed, if it is renewed."""
    followed = Followed()
    followed.fetch((0, 9))
    followed.world.timers.advance(LOCK_S - 1)
    followed.acknowledge(8, 12, RENEW)
    followed.world.timers.advance(2)
    assert followed.locked() == [(8, 12)]
    followed.world.timers.advance(LOCK_S)
    assert followed.locked() == []


def test_held_back_fetch_acquires_nothing_and_carries_its_acknowledgements_immediately() -> None:
    """One without acknowledgements waits first, because brokers respond to it immediately, and clients repeat it."""
    followed = Followed()
    followed.group.holds_back = True
    followed.fetch(acks=[(0, 0, [ACCEPT])])
    waiting: Task[bytes | None] = followed.begin_fetch()
    assert (len(followed.requested), waiting.finished) == (1, False)
    followed.world.timers.advance(0.4)
    assert waiting.finished
    assert [request.max_records for request in followed.requested] == [0, 0]
    followed.group.holds_back = False
    followed.fetch()
    limit = followed.world.services.limits.collected_bytes
    assert (followed.requested[-1].max_records, followed.requested[-1].max_bytes < limit) == (500, True)


def test_stopped_requests_wait_and_are_then_served_where_the_group_is() -> None:
    followed = Followed()
    followed.group.stop()
    at_brokers: Task[bytes | None] = followed.begin_fetch((0, 9))
    assert (at_brokers.finished, followed.requested) == (False, [])
    followed.group.go_on()
    assert at_brokers.finished
    assert followed.locked() == [(0, 9)]
    followed.group.stop()
    here: Task[bytes | None] = followed.begin_fetch((10, 19))
    followed.hold(GROUP)
    followed.group.go_on()
    assert reported(here, 78, 2).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert len(followed.requested) == 1


def test_stopped_requests_wait_for_a_bounded_time() -> None:
    followed = Followed()
    followed.group.stop()
    waiting: Task[bytes | None] = followed.begin_fetch()
    followed.world.timers.advance(followed_group.STOPPED_S_MAX)
    assert waiting.finished


def test_members_are_those_that_sent_a_heartbeat_and_did_not_leave() -> None:
    followed = Followed()
    for member_id, epoch in (("a", 0), ("b", 3), ("a", -1)):
        sent = followed.send_request(76, 1, group_id=GROUP, member_id=member_id, member_epoch=epoch)
        assert sent == FORWARDED
    assert followed.group.members == {"b"}


def test_range_beyond_every_window_makes_the_locks_unknown() -> None:
    followed = Followed()
    followed.fetch((0, forwarded_locks.RANGE_MAX))
    assert "range of 100001 offsets" in followed.group.state().trouble
