"""OffsetCommit at the owner of a group: the offset committed at the broker, the stored ranges, the member's
response.
"""

from __future__ import annotations

import random

import pytest
from kafka_share_proxy.commits.state_records import GroupKey, RangeKey, decode_range_value
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost
from kafka_share_proxy.wire.values import TopicPartition

from tests.support.commit_world import OFFSET_COMMIT, OFFSET_FETCH, Committed, CommitWorld


@pytest.fixture
def world() -> CommitWorld:
    return CommitWorld()


@pytest.mark.states("topic")
def test_a004_1_a_range_between_two_is_put_and_two_records_go(world: CommitWorld) -> None:
    world.begin(43, "45-47,50-50")
    world.journal.slow = True
    sent = world.commit(43, "ic/1;48-49")
    ((records, _),) = world.journal.appends
    assert [(key.first, key.last, value is None) for key, value in records] == [
        (45, 50, False),
        (45, 47, True),
        (50, 50, True),
    ]
    world.journal.confirm()
    assert sent.codes == [0]
    assert (world.primary(), world.ranges()) == ((43, ""), "45-50")


def test_a004_2_and_3_a_range_at_the_committed_offset_moves_it(world: CommitWorld) -> None:
    world.begin(43, "45-47,50-50")
    assert world.commit(43, "ic/1;43-44").codes == [0]
    assert (world.primary(), world.ranges()) == ((48, ""), "50-50")
    world.begin(43)  # a rewind
    world.begin(43, "45-50")
    assert world.commit(43, "ic/1;43-44").codes == [0]
    assert (world.primary(), world.ranges()) == ((51, ""), "")


def test_a004_4_what_a_client_processed_of_a_fetch_closes_all_gaps(world: CommitWorld) -> None:
    world.begin(41, "43-45,48-49")
    assert world.committed() == (41, "ic/1;43-45,48-49")
    assert world.commit(41, "ic/1;41-42,46-47,50-50").codes == [0]
    assert (world.primary(), world.ranges(), world.committed()) == ((51, ""), "", (51, ""))


def test_a004_5_the_same_range_again_writes_nothing(world: CommitWorld) -> None:
    world.begin(41, "46-47")
    world.journal.slow = True
    assert world.commit(41, "ic/1;46-47").codes == [0]
    assert world.journal.appends == []


def test_a004_6_and_7_offsets_below_the_committed_offset_are_done(world: CommitWorld) -> None:
    world.begin(41)
    assert world.commit(41, "ic/1;30-35").codes == [0]
    assert (world.primary()[0], world.ranges()) == (41, "")
    world.begin(43, "45-47")
    assert world.commit(40, "ic/1;40-44").codes == [0]
    assert (world.primary()[0], world.ranges()) == (48, "")


def test_a004_8_a_plain_commit_forward_takes_along_what_it_touches(world: CommitWorld) -> None:
    world.begin(43, "45-47,50-50")
    assert world.commit(50).codes == [0]
    assert (world.primary()[0], world.ranges()) == (51, "")


def test_a004_9_a_plain_commit_backward_drops_all_ranges(world: CommitWorld) -> None:
    world.begin(48, "50-52")
    assert world.commit(41, "my own text").codes == [0]
    assert (world.primary(), world.ranges()) == ((41, "my own text"), "")


def test_group_marker_is_stored_before_the_first_text_is_forwarded(world: CommitWorld) -> None:
    world.journal.slow = True
    sent = world.commit(5, "ic/1;7-8")
    ((records, _),) = world.journal.appends
    assert [type(key) for key, _ in records] == [GroupKey]
    assert world.cluster.count(OFFSET_COMMIT) == 0
    world.journal.confirm()
    assert world.cluster.count(OFFSET_COMMIT) == 1
    assert not sent.has_response, "the range is not stored yet"
    world.journal.confirm()
    assert sent.codes == [0]
    assert world.is_marked()


def test_text_of_a_group_whose_marker_cannot_be_stored_is_not_forwarded(world: CommitWorld) -> None:
    world.journal.slow = True
    sent = world.commit(5, "ic/1;7-8")
    world.journal.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert sent.codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert world.cluster.count(OFFSET_COMMIT) == 0
    world.journal.slow = False
    assert world.commit(5, "ic/1;7-8").codes == [0]
    assert world.ranges() == "7-8"


def test_plain_commits_of_groups_without_ranges_are_forwarded_unchanged(world: CommitWorld) -> None:
    assert world.commit(7, "text of my own").codes == [0]
    assert world.commit(7, "ic/x;1-2").codes == [0]
    assert world.services.held.groups == {}
    assert world.topic == {}
    assert world.primary() == (7, "ic/x;1-2")


def test_group_whose_text_was_refused_is_like_any_other(world: CommitWorld) -> None:
    assert world.commit_many([("t", 0, 5, "ic/1;x"), ("t", 1, 6, "mine")]).codes == [ErrorCode.INVALID_REQUEST, 0]
    assert world.services.held.groups == {}
    assert not world.is_marked()


def test_groups_that_the_pattern_does_not_name_are_left_alone() -> None:
    world = CommitWorld(groups="orders-*")
    assert world.commit(5, "ic/1;7-8").codes == [0]
    assert world.broker() == (5, "ic/1;7-8")
    assert world.commit(5, "ic/1;7-8", group="orders-1").codes == [0]
    assert world.primary("orders-1") == (5, "")


@pytest.mark.parametrize(
    ("text", "offset"),
    [("ic/1;9-7", 5), ("ic/1;-3-5", 5), ("ic/1;x", 5), ("ic/2;1-2", 5), ("ic/1;7-8;u", 5), ("ic/1;7-8", -1)],
)
def test_a004_15_text_that_cannot_be_read_changes_nothing_and_others_go_on(
    world: CommitWorld, text: str, offset: int
) -> None:
    world.begin(5, "20-20")
    sent = world.commit_many([("t", 0, offset, text), ("t", 1, 8, "ic/1;10-11")])
    assert sent.codes == [ErrorCode.INVALID_REQUEST, 0]
    assert (world.primary()[0], world.ranges(), world.ranges(partition=1)) == (5, "20-20", "10-11")


def test_a004_15_too_many_ranges_are_refused_with_12_counted_with_those_stored() -> None:
    world = CommitWorld(ranges_max=3)
    world.begin(5, "10-10,20-20")
    assert world.commit(5, "ic/1;30-30,40-40,50-50,60-60").codes == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.commit(5, "ic/1;30-30,40-40").codes == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.ranges() == "10-10,20-20"
    assert world.commit(5, "ic/1;11-20,30-30,40-40").codes == [0]
    assert world.ranges() == "10-20,30-30,40-40"


@pytest.mark.parametrize(
    "code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REQUEST_TIMED_OUT]
)
def test_a004_16_what_the_coordinator_refuses_is_passed_on_and_nothing_is_stored(
    world: CommitWorld, code: ErrorCode
) -> None:
    world.begin(5, "10-10")
    world.coordinator.refuse = code
    assert world.commit(5, "ic/1;5-7,12-12").codes == [code]
    assert (world.primary()[0], world.ranges()) == (5, "10-10")
    world.coordinator.refuse = ErrorCode.NONE
    assert world.commit(5, "ic/1;5-7,12-12").codes == [0]
    assert (world.primary()[0], world.ranges()) == (8, "10-10,12-12")


def test_after_a_refusal_without_a_reason_the_committed_offset_is_requested_again(world: CommitWorld) -> None:
    world.begin(5, "10-10")
    requested = world.cluster.count(OFFSET_FETCH)
    world.coordinator.refuse = ErrorCode.ILLEGAL_GENERATION
    world.commit(5, "ic/1;12-12")
    world.coordinator.refuse = ErrorCode.NONE
    world.commit(5, "ic/1;12-12")
    assert world.cluster.count(OFFSET_FETCH) == requested, "a definite refusal moves nothing"
    world.coordinator.refuse = ErrorCode.REQUEST_TIMED_OUT
    world.commit(5, "ic/1;14-14")
    world.coordinator.refuse = ErrorCode.NONE
    world.commit(5, "ic/1;14-14")
    assert world.cluster.count(OFFSET_FETCH) == requested + 1


def test_metadata_that_the_broker_keeps_is_the_users(world: CommitWorld) -> None:
    world.begin(5)
    assert world.commit(5, "ic/1;7-8;u=mine; all mine").codes == [0]
    assert world.primary() == (5, "mine; all mine")
    assert world.committed() == (5, "ic/1;7-8;u=mine; all mine")
    assert world.commit(5, "ic/1;;pr=10-20,3-4;u=x").codes == [0]
    assert world.primary() == (5, "ic/1;;pr=10-20,3-4;u=x")
    assert world.committed() == (5, "ic/1;7-8;pr=10-20,3-4;u=x")
    assert world.commit(5, "ic/1;5-6,20-20\0").codes == [0]
    assert (world.primary(), world.committed()) == ((9, "\0"), (9, "ic/1;20-20\0"))
    assert world.commit(5, "ic/1;9-19;u=x\0").codes == [0]
    assert (world.primary(), world.committed()) == ((21, "x\0"), (21, "x\0"))


def test_leader_epoch_is_forwarded_only_with_its_own_offset(world: CommitWorld) -> None:
    def epoch() -> int:
        return world.coordinator.committed["g", "t", 0].leader_epoch

    world.commit(5, "ic/1;10-10", leader_epoch=3)
    assert epoch() == 3
    world.commit(5, "ic/1;12-12", leader_epoch=4)
    assert epoch() == 4
    world.commit(4, "ic/1;14-14", leader_epoch=2)
    assert epoch() == 4, "of the offset that stays committed"
    world.commit(5, "ic/1;5-9", leader_epoch=4)
    assert (world.primary()[0], epoch()) == (11, -1)


@pytest.mark.states("topic")
def test_values_have_the_leader_epoch_and_the_committed_offset_of_their_time(world: CommitWorld) -> None:
    world.commit(5, "ic/1;12-12", leader_epoch=4)
    world.commit(4, "ic/1;14-14", leader_epoch=2)
    values = {(key.first, decode_range_value(value)) for key, value in world.topic.items() if isinstance(key, RangeKey)}
    assert {(first, value.leader_epoch, value.committed_offset) for first, value in values} == {(12, 4, 5), (14, 2, 5)}
    assert {value.topic_id for _, value in values} == {world.cluster.topics["t"].topic_id}


@pytest.mark.states("topic", "overflow")
def test_response_waits_until_the_range_is_stored_and_is_15_where_it_is_not(world: CommitWorld) -> None:
    world.begin(5)
    world.commit(5, "ic/1;20-20")
    world.journal.slow = True
    first, again = world.commit(5, "ic/1;10-10"), world.commit(5, "ic/1;10-10")
    assert not first.has_response
    assert not again.has_response, "it says nothing new, but what it says is not stored yet"
    world.journal.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert first.codes == again.codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    third = world.commit(5, "ic/1;10-10")
    world.journal.confirm()
    assert third.codes == [0]
    assert world.ranges() == "10-10,20-20"


@pytest.mark.states("topic", "overflow")
def test_what_an_append_that_failed_had_deleted_is_deleted_by_the_next(world: CommitWorld) -> None:
    world.begin(5, "10-10,12-12")
    world.journal.slow = True
    world.commit(5, "ic/1;11-11")
    world.journal.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert world.ranges() == "10-10,12-12"
    sent = world.commit(5, "ic/1;20-20")
    while world.journal.appends:
        world.journal.confirm()
    assert sent.codes == [0]
    assert world.ranges() == "10-12,20-20"


@pytest.mark.states("topic", "overflow")
def test_response_that_takes_too_long_is_15_and_the_append_continues(world: CommitWorld) -> None:
    world.begin(5)
    world.commit(5, "ic/1;20-20")
    world.journal.slow = True
    sent = world.commit(5, "ic/1;10-10")
    world.timers.advance(26)
    assert sent.codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    world.journal.confirm()
    assert world.ranges() == "10-10,20-20"


@pytest.mark.states("topic")
def test_commits_that_do_not_move_the_committed_offset_are_in_flight_together(world: CommitWorld) -> None:
    world.begin(5, "30-30")
    world.cluster.held = {OFFSET_COMMIT}
    sent = [world.commit(5, f"ic/1;{first}-{first}") for first in (10, 12, 14)]
    assert len(world.cluster._waiting) == 3
    moves = world.commit(5, "ic/1;5-9")
    later = world.commit(5, "ic/1;16-16")
    assert len(world.cluster._waiting) == 3, "the one that moves the mark goes alone, and who comes later waits"
    for _ in range(3):
        world.cluster.release()
        world.cluster.held = {OFFSET_COMMIT}
    world.cluster.release()
    assert [each.codes for each in (*sent, moves, later)] == [[0]] * 5
    assert (world.primary()[0], world.ranges()) == (11, "12-12,14-14,16-16,30-30")


def test_client_that_leaves_meanwhile_keeps_no_other_waiting_and_the_committed_offset_is_requested(
    world: CommitWorld,
) -> None:
    world.begin(5, "10-10")
    world.cluster.held = {OFFSET_COMMIT}
    connection = world.connect()
    world.commit(5, "ic/1;5-9", connection=connection)
    other = world.commit(5, "ic/1;12-12")
    world.coordinator.committed["g", "t", 0] = Committed(11)  # it was accepted all the same
    world.cluster._waiting.clear()
    connection.close()
    world.cluster.release()
    assert other.codes == [0]
    assert (world.primary()[0], world.ranges()) == (11, "12-12")
    assert len(world.services.locks) == 0


def test_commit_whose_response_is_lost_ends_the_clients_connection(world: CommitWorld) -> None:
    world.begin(5, "10-10")
    world.cluster.held = {OFFSET_COMMIT}
    connection = world.connect()
    sent = world.commit(5, "ic/1;5-9", connection=connection)
    connection.lose_upstream()
    with pytest.raises(UpstreamLost):
        _ = sent.response
    world.cluster.held = set()
    assert world.commit(5, "ic/1;12-12").codes == [0]


def test_broker_that_does_not_respond_to_one_member_delays_others_for_a_bounded_time(world: CommitWorld) -> None:
    world.begin(5, "10-10")
    world.cluster.held = {OFFSET_COMMIT}
    stuck = world.commit(5, "ic/1;5-9")
    other = world.commit(5, "ic/1;12-12")
    world.timers.advance(11)
    assert other.codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert not stuck.has_response
    world.cluster.release()
    assert stuck.codes == [0]
    assert len(world.services.locks) == 0


def test_client_without_the_right_to_read_a_group_stores_no_marker(world: CommitWorld) -> None:
    world.cluster.group_errors["g"] = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert world.commit(5, "ic/1;7-8").codes == [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    assert not world.is_marked()
    assert world.cluster.count(OFFSET_COMMIT) == 0


def test_moved_past_the_proxy_the_brokers_word_counts(world: CommitWorld) -> None:
    world.begin(5, "10-10,20-20")
    world.coordinator.committed["g", "t", 0] = Committed(15)
    assert world.committed() == (15, "ic/1;20-20")
    assert world.ranges() == "20-20"
    world.coordinator.committed["g", "t", 0] = Committed(7)
    assert world.committed() == (7, "")
    assert world.ranges() == ""


async def test_rewind_past_the_proxy_is_noticed_after_a_restart(world: CommitWorld) -> None:
    world.begin(15, "20-20")
    world.coordinator.committed["g", "t", 0] = Committed(7)
    await world.restart()
    assert world.commit(7, "ic/1;9-9").codes == [0]
    assert (world.primary()[0], world.ranges()) == (7, "9-9")


@pytest.mark.parametrize("is_noticed_by_fetch", [True, False])
@pytest.mark.states("topic", "overflow")
async def test_committed_offset_does_not_pass_ranges_that_a_rewind_dropped_and_the_topic_still_has(
    world: CommitWorld, is_noticed_by_fetch: bool
) -> None:
    """Another owner would find them below a committed offset that has advanced that far again, and take them for
    done.
    """
    world.begin(15, "20-20")
    world.coordinator.committed["g", "t", 0] = Committed(7)
    world.services.held.group("g").state_of(TopicPartition("t", 0)).forget_committed()
    world.journal.slow = True
    first = world.fetch() if is_noticed_by_fetch else world.commit(17)
    world.journal.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert first.has_response
    second = world.commit(17)
    world.journal.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert second.codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert (world.primary()[0], world.ranges()) == (7, "20-20")
    third = world.commit(17)
    world.journal.confirm()
    assert third.codes == [0]
    await world.restart()
    assert world.committed() == (17, "")


@pytest.mark.states("topic")
async def test_a004_12_ranges_below_the_committed_offset_are_dropped_after_a_crash_in_between(
    world: CommitWorld,
) -> None:
    world.begin(43, "45-47,60-61")
    world.coordinator.committed["g", "t", 0] = Committed(48)  # moved, and the tombstones were not written
    await world.restart()
    assert world.committed() == (48, "ic/1;60-61")
    assert world.ranges() == "60-61"


@pytest.mark.states("topic")
async def test_plain_commit_between_a_moved_committed_offset_and_the_tombstones_is_safe(world: CommitWorld) -> None:
    world.begin(43, "45-47,60-61")
    world.coordinator.committed["g", "t", 0] = Committed(50)  # 48 by the crashed owner, 50 by a plain commit
    await world.restart()
    assert world.commit(52).codes == [0]
    assert (world.primary()[0], world.ranges()) == (52, "60-61")


async def test_after_a_restart_everything_is_where_it_was(world: CommitWorld) -> None:
    world.begin(43, "45-47,50-50")
    await world.restart()
    assert world.committed() == (43, "ic/1;45-47,50-50")
    assert world.commit(43, "ic/1;43-44").codes == [0]
    assert (world.primary()[0], world.ranges()) == (48, "50-50")


def test_topic_made_anew_has_none_of_the_ranges(world: CommitWorld) -> None:
    world.begin(43, "45-47")
    world.cluster.create("t", leaders=(1, 1, 1, 1))
    del world.coordinator.committed["g", "t", 0]
    world.timers.advance(6)
    assert world.commit(3, "ic/1;5-6").codes == [0]
    assert (world.primary()[0], world.ranges()) == (3, "5-6")


def test_topics_by_id_are_the_same_topics(world: CommitWorld) -> None:
    world.begin(43, "45-47")
    sent = world.commit(43, "ic/1;43-44", version=10)
    assert sent.codes == [0]
    assert sent.response.topics[0].topic_id == world.cluster.topics["t"].topic_id
    assert (world.primary()[0], world.ranges()) == (48, "")
    unknown = world.commit_many([("nobody", 0, 5, "ic/1;7-8"), ("t", 1, 5, "ic/1;7-8")], version=10)
    assert unknown.codes == [ErrorCode.UNKNOWN_TOPIC_ID, 0]


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_commits_individually(world: CommitWorld, version: int) -> None:
    world.begin(43)
    assert world.commit(43, "ic/1;45-47", version=version).codes == [0]
    assert world.ranges() == "45-47"


def test_partition_that_does_not_exist_is_the_brokers_to_refuse(world: CommitWorld) -> None:
    assert world.commit(5, "ic/1;7-8", partition=9).codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.commit(5, "ic/1;7-8", topic="nobody").codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.ranges() == ""


def test_partition_named_twice_is_refused_the_second_time(world: CommitWorld) -> None:
    sent = world.commit_many([("t", 0, 5, "ic/1;7-8"), ("t", 0, 6, "ic/1;9-9")])
    assert sent.response.topics[0].partitions[0].error_code == 0
    assert sent.codes == [0, ErrorCode.INVALID_REQUEST]
    assert world.ranges() == "7-8"


def test_ranges_of_a_view_are_not_those_of_its_base_or_of_another_view(world: CommitWorld) -> None:
    world.services.base_of = lambda topic: topic.rsplit(".", 1)[-1]
    for view in ("__view.s4.t", "__view.s8.t"):
        world.cluster.create(view, leaders=(1, 1))
    assert world.commit(5, "ic/1;7-8", topic="__view.s4.t").codes == [0]
    assert world.commit(5, "ic/1;7-8", topic="__view.s8.t").codes == [ErrorCode.INVALID_REQUEST]
    assert world.commit(5, "ic/1;7-8").codes == [ErrorCode.INVALID_REQUEST]
    assert world.commit(5, "ic/1;7-8", topic="u").codes == [0]
    assert world.commit(5).codes == [0], "the topic itself is committed plainly"
    assert world.commit(9, topic="__view.s4.t").codes == [0]
    assert world.commit(5, "ic/1;7-8").codes == [0], "no range of the view is left"


def test_response_has_the_order_of_the_request_and_the_brokers_throttle(world: CommitWorld) -> None:
    world.begin(5, "9-9")
    sent = world.commit_many([("u", 2, 5, None), ("t", 1, 5, "ic/1;x"), ("t", 0, 5, "ic/1;7-8"), ("u", 0, 1, None)])
    partitions = [(topic.name, entry.partition_index) for topic in sent.response.topics for entry in topic.partitions]
    assert partitions == [("u", 2), ("u", 0), ("t", 1), ("t", 0)]


def test_a004_18_thousand_overlapping_commits_in_any_order_come_to_their_union(world: CommitWorld) -> None:
    dice = random.Random(4)
    world.begin(0)
    spans = [(start, start + dice.randrange(4)) for start in (dice.randrange(1, 800) for _ in range(1000))]
    world.cluster.held = {OFFSET_COMMIT}
    sent = [world.commit(0, f"ic/1;{first}-{last}") for first, last in spans]
    for _ in range(1000):
        if all(each.has_response for each in sent):
            break
        world.cluster.release()
        world.cluster.held = {OFFSET_COMMIT}
    assert [each.codes for each in sent] == [[0]] * 1000
    done = {offset for first, last in spans for offset in range(first, last + 1)}
    stored = {o for part in world.ranges().split(",") for o in range(*_half_open(part))}
    assert stored == done
    assert len(world.services.locks) == 0


def _half_open(part: str) -> tuple[int, int]:
    first, last = part.split("-")
    return int(first), int(last) + 1
