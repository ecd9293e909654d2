"""Commits: one under way for each partition, coalesced, and each call ended once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers, lists, sampled_from, tuples
from kafka_share_proxy.consumer.commits.commit_requests import CommitRequests
from kafka_share_proxy.consumer.events import BrokerRefused, CallDone, CommitRefused, PartitionLostError
from kafka_share_proxy.consumer.groups.classic_messages import MemberIdentity
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata, Partitions
from kafka_share_proxy.consumer.requests import UnsentRequest
from kafka_share_proxy.offsets.commit_text import parse_commit_text
from kafka_share_proxy.offsets.ranges import OffsetRanges
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.managers import BARRED, LOST, NOW, OPTIONS, backoff, found_coordinator, no_request, only_request
from tests.consumer.messages import round_trip

A, B, C = (TopicPartition("p", number) for number in range(3))


@dataclass
class Group:
    """The member whose commits these are."""

    identity: MemberIdentity = MemberIdentity("m", 1)  # noqa: RUF009 - a tuple
    holds: Partitions | None = frozenset({A, B, C})
    fenced: list[ErrorCode] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.coordinator = found_coordinator()
        self.commits = CommitRequests(
            OPTIONS, self.coordinator, backoff(), lambda: self.identity, lambda: self.holds, self.note
        )

    def note(self, _: MemberIdentity, code: ErrorCode, __: float) -> list[Any]:
        self.fenced.append(code)
        return []

    def commit(self, call_id: int, **offsets: int) -> list[Any]:
        places = {"a": A, "b": B, "c": C}
        return self.commits.commit({places[k]: OffsetAndMetadata(v, "text") for k, v in offsets.items()}, call_id)

    def respond(self, request: UnsentRequest, now: float = NOW, **codes: ErrorCode) -> list[Any]:
        response = registry.message("OffsetCommitResponse")
        places = {A: "a", B: "b", C: "c"}
        topics = [
            response.OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    response.OffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes.get(places[TopicPartition(topic.name, each.partition_index)], 0),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.message.topics
        ]
        return self.commits.on_response(request, round_trip(response(topics=topics), 9), now)


def sent(request: UnsentRequest) -> dict[int, int]:
    return {
        each.partition_index: each.committed_offset for topic in request.message.topics for each in topic.partitions
    }


def test_waiting_commits_are_one_request_with_the_identity_of_the_member() -> None:
    group = Group()
    group.commit(1, a=5, b=6)
    group.commit(2, c=7)
    request = only_request(group.commits)
    assert sent(request) == {0: 5, 1: 6, 2: 7}
    assert (request.message.member_id, request.message.generation_id_or_member_epoch) == ("m", 1)
    assert group.respond(request) == [CallDone(call_id=1), CallDone(call_id=2)]
    assert group.commits.is_idle


def test_while_a_commit_is_in_flight_only_the_newest_offset_of_later_calls_waits() -> None:
    group = Group()
    group.commit(1, a=5)
    first = only_request(group.commits)
    group.commit(2, a=6)
    group.commit(3, a=8, b=1)
    assert sent(only_request(group.commits)) == {1: 1}, "of a one is under way"
    assert group.respond(first) == [CallDone(call_id=1)]
    second = only_request(group.commits)
    assert sent(second) == {0: 8}
    assert group.respond(second) == [CallDone(call_id=2)], "call 3 waits for b"


def test_a_commit_of_an_unassigned_partition_is_refused_and_the_rest_is_committed() -> None:
    group = Group(holds=frozenset({A}))
    assert group.commit(1, a=5, b=5) == []
    (done,) = group.respond(only_request(group.commits))
    assert isinstance(done.value, CommitRefused)
    assert list(done.value.errors) == [B]
    assert isinstance(done.value.errors[B], PartitionLostError)
    assert group.commit(2, b=5)[0].call_id == 2, "at once where nothing is left to send"
    assert group.commits.commit({}, 3) == [CallDone(call_id=3)]


@pytest.mark.parametrize("code", [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
])  # fmt: skip
def test_a_retriable_error_repeats_the_refused_partitions_after_a_pause(code: ErrorCode) -> None:
    group = Group()
    group.commit(1, a=5, b=6)
    assert group.respond(only_request(group.commits), a=code) == []
    assert no_request(group.commits) == pytest.approx(NOW + 0.1)
    again = only_request(group.commits, NOW + 0.1)
    assert sent(again) == {0: 5}
    assert group.respond(again) == [CallDone(call_id=1)]


def test_a_commit_without_a_response_waits_for_the_next_coordinator() -> None:
    group = Group()
    group.commit(1, a=5)
    assert group.commits.on_response(only_request(group.commits), LOST, NOW) == []
    assert group.coordinator.node_id is None
    no_request(group.commits, NOW + 1)
    assert not group.commits.is_settled([A])
    assert group.commits.is_settled([B])


def test_a000_11_what_the_old_generation_may_not_commit_the_new_one_does() -> None:
    group = Group()
    group.commit(1, a=5, b=6)
    request = only_request(group.commits)
    assert group.respond(request, a=ErrorCode.ILLEGAL_GENERATION, b=ErrorCode.ILLEGAL_GENERATION) == []
    assert group.fenced == [ErrorCode.ILLEGAL_GENERATION] * 2
    no_request(group.commits, NOW + 9)
    group.identity, group.holds = MemberIdentity("m", 2), frozenset({A})
    expected = group.commits.poll(NOW + 9)
    (again,) = expected.requests
    assert sent(again) == {0: 5}
    assert again.message.generation_id_or_member_epoch == 2
    assert expected.events == ()
    (done,) = group.respond(again)
    assert list(done.value.errors) == [B], "b is not the member's any more"


def test_a_newer_commit_takes_the_place_of_one_that_is_held() -> None:
    group = Group()
    group.commit(1, a=5)
    group.respond(only_request(group.commits), a=ErrorCode.STALE_MEMBER_EPOCH)
    group.commit(2, a=9)
    assert sent(only_request(group.commits)) == {0: 9}


def test_without_a_group_a_refusal_is_final() -> None:
    group = Group(holds=None, identity=MemberIdentity())
    group.commit(1, a=5)
    (done,) = group.respond(only_request(group.commits), a=ErrorCode.UNKNOWN_MEMBER_ID)
    assert isinstance(done.value.errors[A], BrokerRefused)
    assert group.fenced == []


def test_errors_for_good_name_the_partition() -> None:
    group = Group()
    group.commit(1, a=5)
    (done,) = group.respond(only_request(group.commits), a=ErrorCode.OFFSET_METADATA_TOO_LARGE)
    assert str(done.value.errors[A]) == "OffsetCommit of p-0: OFFSET_METADATA_TOO_LARGE"
    group.commit(2, b=5)
    (done,) = group.commits.on_response(only_request(group.commits), BARRED, NOW)
    assert str(done.value.errors[B]) == "OffsetCommit of p-1: no such user"


def test_a_lost_partition_is_no_longer_sent_and_requests_in_flight_still_report() -> None:
    group = Group()
    group.commit(1, a=5)
    request = only_request(group.commits)
    group.commit(2, a=6, b=6)
    assert group.commits.abandon([A, C]) == [], "call 2 waits for b"
    assert group.respond(request) == [CallDone(call_id=1)], "the outcome of what was sent is told"
    (done,) = group.respond(only_request(group.commits))
    assert list(done.value.errors) == [A]


@settings(max_examples=60, deadline=None)
@given(
    lists(tuples(sampled_from((A, B)), integers(0, 99)), min_size=1, max_size=60),
    lists(sampled_from("sarn"), max_size=200),
)
def test_a001_7_any_order_of_calls_and_responses_ends_each_call_once_in_the_order_of_calls(
    calls: list[tuple[TopicPartition, int]], steps: list[str]
) -> None:
    """s: the next call; a, r: the oldest request is taken or refused for now; n: what is due goes out."""
    group = Group()
    done: list[int] = []
    on_the_wire: dict[TopicPartition, list[int]] = {A: [], B: []}
    under_way: list[UnsentRequest] = []
    waiting = list(enumerate(calls))
    now = NOW
    for step in [*steps, *"sna" * (len(calls) + 2)]:
        now += 2
        if step == "s" and waiting:
            call_id, (place, offset) = waiting.pop(0)
            group.commits.commit({place: OffsetAndMetadata(offset)}, call_id)
        elif step == "n":
            for request in group.commits.poll(now).requests:
                for number, offset in sent(request).items():
                    on_the_wire[TopicPartition("p", number)].append(offset)
                under_way.append(request)
        elif step in "ar" and under_way:
            code = ErrorCode.REQUEST_TIMED_OUT if step == "r" else ErrorCode.NONE
            done += [each.call_id for each in group.respond(under_way.pop(0), now, a=code, b=code)]
    while under_way or not group.commits.is_idle:
        now += 2
        under_way += group.commits.poll(now).requests
        done += [each.call_id for each in group.respond(under_way.pop(0), now)]
    assert sorted(done) == list(range(len(calls)))
    for place in (A, B):
        expected = iter([offset for at, offset in calls if at == place])
        sent_once = [each for n, each in enumerate(on_the_wire[place]) if n == 0 or each != on_the_wire[place][n - 1]]
        assert all(offset in expected for offset in sent_once), "in the order of the calls, some left out"


def test_a_topic_that_stays_unknown_is_reported_after_the_time_out_of_calls() -> None:
    """A topic that was deleted: Kafka's clients try again until default.api.timeout.ms is over, and so do we."""
    group = Group()
    assert group.commit(1, a=5, b=6) == []
    now, requests = NOW, 0
    done: list[Any] = []
    while not done and requests < 1000:
        expected = group.commits.poll(now)
        for request in expected.requests:
            requests += 1
            done += group.respond(request, now, a=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        now = max(now, min(expected.wake_at, now + 1)) if expected.requests == () else now
    assert now - NOW == pytest.approx(OPTIONS.api_timeout_s, abs=2 * OPTIONS.retry_backoff_max_s)
    assert requests < 100, "with the pauses of retry.backoff.max.ms"
    ((call_id, refused),) = [(each.call_id, each.value) for each in done]
    assert call_id == 1
    (error,) = refused.errors.values()
    assert str(error) == "OffsetCommit of p-0: UNKNOWN_TOPIC_OR_PARTITION (again and again for 60 s)"
    assert group.commits.is_idle
    assert group.commit(2, a=7) == []
    assert group.respond(only_request(group.commits, now + 2), now + 2, a=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) == []
    assert group.respond(only_request(group.commits, now + 4), now + 4) == [CallDone(call_id=2)], "it was made again"


def test_a_rebalance_may_take_longer_than_the_time_out_of_calls() -> None:
    group = Group()
    group.commit(1, a=5)
    for after_s in (0, 40, 80, 120):
        now = NOW + after_s
        assert group.respond(only_request(group.commits, now), now, a=ErrorCode.REBALANCE_IN_PROGRESS) == []
    assert group.respond(only_request(group.commits, NOW + 160), NOW + 160) == [CallDone(call_id=1)]


# Commits of many ranges

LONG = OffsetAndMetadata(0, "ic/1;" + ",".join(f"{n}-{n}" for n in range(1001, 9001, 2)))
"""Text of 4,000 ranges: more than a string of Kafka's protocol."""
MEDIUM = OffsetAndMetadata(0, "ic/1;" + ",".join(f"{n}-{n}" for n in range(1001, 3001, 2)))
"""Text of 1,000 ranges: more than brokers accept by default."""
TOO_LARGE = ErrorCode.OFFSET_METADATA_TOO_LARGE


def text_of(request: UnsentRequest) -> str:
    ((each,),) = [topic.partitions for topic in request.message.topics]
    return str(each.committed_metadata)


def ranges_of(*texts: str) -> OffsetRanges:
    ranges = OffsetRanges()
    for text in texts:
        for start, end in parse_commit_text(text).ranges:
            ranges.merge(start, end)
    return ranges


def looked_up(group: Group) -> list[Any]:
    """Return a list that collects lookups: the partitions, and the receiver of their committed offsets."""
    queries: list[Any] = []
    group.commits._query_committed = lambda partitions, deliver: queries.append((partitions, deliver))
    return queries


def test_a_text_beyond_a_string_is_sent_in_several_commits_one_after_the_other() -> None:
    group = Group()
    queries = looked_up(group)
    group.commits.commit({A: LONG}, 1)
    texts: list[str] = []
    while not queries:
        request = only_request(group.commits)
        texts.append(text_of(request))
        assert len(texts[-1]) <= 32_767
        assert group.respond(request) == []
    assert len(texts) == 2
    assert ranges_of(*texts) == parse_commit_text(LONG.metadata).ranges
    ((partitions, deliver),) = queries
    assert partitions == {A}
    assert deliver({A: OffsetAndMetadata(0, texts[0])}) == [CallDone(call_id=1)], "the first ranges are shown"


def test_a_broker_that_keeps_the_last_of_several_texts_is_noticed() -> None:
    """offset.metadata.max.bytes may be higher than a string."""
    group = Group()
    queries = looked_up(group)
    group.commits.commit({A: LONG}, 1)
    first, second = only_request(group.commits), None
    group.respond(first)
    second = only_request(group.commits)
    group.respond(second)
    (done,) = queries[0][1]({A: OffsetAndMetadata(0, text_of(second))})
    assert ranges_of(text_of(first)) == OffsetRanges(done.value.left_out[A])
    group.commits.commit({A: LONG}, 2)
    assert len(text_of(only_request(group.commits))) <= 4096, "the widest from now on"


def test_a_text_that_a_broker_refuses_as_too_large_is_made_shorter_and_the_rest_is_returned() -> None:
    group = Group()
    group.commits.commit({A: MEDIUM}, 1)
    request = only_request(group.commits)
    assert text_of(request) == MEDIUM.metadata
    assert group.respond(request, a=TOO_LARGE) == []
    shorter = only_request(group.commits)
    assert 4000 < len(text_of(shorter)) <= 4096
    (done,) = group.respond(shorter)
    left_out = OffsetRanges(done.value.left_out[A])
    for start, end in ranges_of(text_of(shorter)):
        left_out.merge(start, end)
    assert left_out == ranges_of(MEDIUM.metadata), "nothing is lost in between"


def test_the_offset_is_committed_without_ranges_where_none_are_accepted() -> None:
    group = Group()
    group.commits.commit({A: MEDIUM}, 1)
    for _ in range(2):
        assert group.respond(only_request(group.commits), a=TOO_LARGE) == []
    last = only_request(group.commits)
    assert text_of(last) == "ic/1;"
    (done,) = group.respond(last)
    assert OffsetRanges(done.value.left_out[A]) == ranges_of(MEDIUM.metadata)


def test_a_broker_that_refuses_the_offset_without_ranges_is_an_error() -> None:
    group = Group()
    group.commits.commit({A: MEDIUM}, 1)
    for _ in range(2):
        assert group.respond(only_request(group.commits), a=TOO_LARGE) == []
    (done,) = group.respond(only_request(group.commits), a=TOO_LARGE)
    assert done.value.errors[A].code is TOO_LARGE


def test_a_newer_commit_takes_the_place_of_what_is_left_of_a_longer_one() -> None:
    group = Group()
    looked_up(group)
    group.commits.commit({A: LONG}, 1)
    request = only_request(group.commits)
    group.commit(2, a=9000)
    assert group.respond(request) == []
    request = only_request(group.commits)
    assert text_of(request) == "text"
    assert group.respond(request) == [CallDone(call_id=1), CallDone(call_id=2)]


def test_a_text_that_is_sent_again_after_a_failure_continues_where_it_was() -> None:
    group = Group()
    looked_up(group)
    group.commits.commit({A: LONG}, 1)
    group.respond(only_request(group.commits))
    second = only_request(group.commits)
    assert group.respond(second, a=ErrorCode.REBALANCE_IN_PROGRESS) == []
    assert text_of(only_request(group.commits, NOW + 10)) == text_of(second)


def test_a_long_text_of_the_user_is_refused_by_the_broker() -> None:
    group = Group()
    group.commits.commit({A: OffsetAndMetadata(1, "x" * 5000)}, 1)
    (done,) = group.respond(only_request(group.commits), a=TOO_LARGE)
    assert done.value.errors[A].code is TOO_LARGE
