"""A journal over producers and channels: appends that share a Produce, their outcomes, and the end of ownership."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from kafka_share_proxy.brokers.replaced import SILENT_S
from kafka_share_proxy.durable.coming_appends import LATE_S, SHARE_MAX_S
from kafka_share_proxy.durable.interfaces import JournalRefused
from kafka_share_proxy.durable.journal import CHECK_MAX_S, TopicJournal
from kafka_share_proxy.durable.journal_events import JournalEvents
from kafka_share_proxy.durable.producer_requests import TakenOver
from kafka_share_proxy.loop.promise import Callback, CallbackOwner, on_behalf_of
from kafka_share_proxy.sharegroups.state import state_records
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE, StateKey
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode, LocalProtocolError
from kafka_share_proxy.wire.records.records import decode_records

LEADER, COORDINATOR = 1, 2
GROUP = "g"
PARTITION = state_records.state_partition(GROUP)
SAME = next(f"s{n}" for n in range(1000) if state_records.state_partition(f"s{n}") == PARTITION)
OTHER = next(f"o{n}" for n in range(1000) if state_records.state_partition(f"o{n}") != PARTITION)


class Loop:
    """The part of the reactor that the journal needs; the test runs the iterations."""

    def __init__(self) -> None:
        self.time = 100.0
        self.soon: list[Callable[[], object]] = []
        self.alarms: list[tuple[float, Callable[[], None]]] = []

    def now(self) -> float:
        return self.time

    def wall_ms(self) -> int:
        return 1_700_000_000_000

    def call_soon(self, _owner: object, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def call_on_behalf_of(self, owner: CallbackOwner, callback: Callback) -> None:
        self.soon.append(partial(on_behalf_of, owner, callback))

    def call_at(self, deadline: float, callback: Callable[[], None]) -> Any:
        alarm = (deadline, callback)
        self.alarms.append(alarm)

        class Cancel:
            cancel = staticmethod(lambda: self.alarms.remove(alarm) if alarm in self.alarms else None)

        return Cancel()

    def iterate(self, seconds: float = 0.0) -> None:
        """Let time pass, ring what is due, do what was planned."""
        self.time += seconds
        for alarm in [alarm for alarm in self.alarms if alarm[0] <= self.time]:
            self.alarms.remove(alarm)
            alarm[1]()
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


class Channel:
    """Channel that records requests and responds when the test decides."""

    closed = False

    def __init__(self) -> None:
        self.requested: list[tuple[int, Any, Callable[[Any], None]]] = []

    def highest(self, _key: int, ours_max: int) -> int:
        return ours_max

    def send_request(self, key: int, _version: int, message: Any, done: Callable[[Any], None]) -> None:
        self.requested.append((key, message, done))

    def send_frame(self, frame: bytes, decode: Callable[[bytes], tuple[int, Any]], done: Callable[[Any], None]) -> None:
        header, message = frames.decode_request(frame[4:])

        def respond(response: Any) -> None:
            if response is None:
                done(None)
            else:
                done(decode(frames.response(header.key, header.version, 0, response)[4:])[1])

        self.requested.append((header.key, message, respond))


class Links:
    """Channels that open immediately, unless the test decides otherwise."""

    def __init__(self) -> None:
        self.channels: dict[tuple[int, str], Channel] = {}
        self.down = False
        self.late: set[int] = set()
        """Brokers that are silent, or not to be reached."""

    def get(self, node_id: int, purpose: str) -> Channel | None:
        role, topic = purpose.split()
        assert topic == SHARE_STATE.topic
        return None if self.down else self.channels.setdefault((node_id, role), Channel())

    def is_late(self, node_id: int, _purpose: str) -> bool:
        return node_id in self.late

    def give_up(self, node_id: int, purpose: str, _reason: str) -> None:
        for _, _, done in self.channels.pop((node_id, purpose.split()[0])).requested:
            done(None)


class World:
    """A journal with one leader and one coordinator for everything."""

    def __init__(self) -> None:
        self.loop, self.links = Loop(), Links()
        self.notes: list[str] = []
        self.takeovers: dict[int, TakenOver] = {}
        self.lost: list[tuple[int, ErrorCode]] = []
        self.views = 0
        self.offset = -5
        self.checking: list[int] = []
        self.went_back: list[int] = []
        events = JournalEvents(
            need_view=self._need_view,
            taken_over=self.takeovers.__setitem__,
            lost=lambda partition, code: self.lost.append((partition, code)),
            checking=self.checking.append,
            went_back=self.went_back.append,
        )
        loop: Any = self.loop
        channels: Any = self.links
        self.journal = TopicJournal(
            SHARE_STATE, loop, lambda event, **_: self.notes.append(event), "proxy:1", channels, events
        )
        self.journal.leaders = dict.fromkeys(range(50), LEADER)
        self.journal.coordinators = dict.fromkeys(range(50), COORDINATOR)

    def _need_view(self) -> None:
        self.views += 1

    def own(self, *partitions: int) -> None:
        """Take over and serve."""
        self.journal.take_over(partitions)
        self.loop.iterate()
        for _ in partitions:
            self.identify(epoch=1)
        self.loop.iterate()
        self.produced()
        self.journal.serve(partitions)

    def channel(self, purpose: str) -> Channel:
        return self.links.channels[LEADER if purpose == "Append" else COORDINATOR, purpose]

    def identify(self, epoch: int = 1, code: int = 0) -> Any:
        key, request, done = self.channel("Identify").requested.pop(0)
        assert key == 22
        done(registry.message("InitProducerIdResponse")(error_code=code, producer_id=7, producer_epoch=epoch))
        return request

    def produced(self, offset: int | None = None, **codes: int) -> dict[int, list[bytes]]:
        """Respond to the Produce in flight. Return its content: partition -> keys. `offset`: not after all others."""
        key, request, done = self.channel("Append").requested.pop(0)
        assert (key, request.acks, request.transactional_id) == (0, -1, None)
        (topic,) = request.topic_data
        response = registry.message("ProduceResponse")
        self.offset += 10
        at = self.offset if offset is None else offset
        entries = [
            response.PartitionProduceResponse(index=data.index, error_code=codes.get("code", 0), base_offset=at)
            for data in topic.partition_data
        ]
        done(response(responses=[response.TopicProduceResponse(name=topic.name, partition_responses=entries)]))
        return {data.index: [r.key for r in decode_records(bytes(data.records))] for data in topic.partition_data}

    def put(self, group: str = GROUP) -> Any:
        return self.journal.append([(StateKey("group", group), b"\0\0value")])


@pytest.fixture
def world() -> World:
    journal_world = World()
    journal_world.own(PARTITION)
    return journal_world


def key(group: str = GROUP) -> bytes:
    return state_records.encode_key(StateKey("group", group))


def code_of(promise: Any) -> ErrorCode:
    assert promise.done
    with pytest.raises(JournalRefused) as caught:
        promise.result()
    return caught.value.code


def test_append_waits_for_those_that_are_coming_and_takes_them_along(world):
    """durable/README.md rule 34: they go out in one request, as soon as the last of them has come."""
    world.journal.coming.begin("second", world.loop.time)
    first = world.put()
    world.loop.iterate()
    assert not world.channel("Append").requested
    second = world.put(SAME)
    world.journal.coming.end("second", world.loop.time)
    world.loop.iterate()
    assert world.produced() == {PARTITION: [key(), key(SAME)]}
    assert first.done
    assert second.done


def test_append_is_sent_as_soon_as_no_other_is_expected(world):
    """The coordinator has refused the other commit: nothing of it is stored."""
    world.journal.coming.begin("refused", world.loop.time)
    world.put()
    world.loop.iterate()
    assert not world.channel("Append").requested
    world.journal.coming.end("refused", world.loop.time)
    world.loop.iterate()
    assert world.produced() == {PARTITION: [key()]}


def test_append_without_others_expected_does_not_wait(world):
    world.put()
    world.loop.iterate()
    assert len(world.channel("Append").requested) == 1


def test_append_does_not_wait_for_those_that_began_after_it(world):
    """Else a stream of commits would hold it up."""
    world.journal.coming.begin("earlier", world.loop.time)
    world.put()
    world.loop.iterate()
    world.loop.iterate(SHARE_MAX_S / 2)
    world.journal.coming.begin("later", world.loop.time)
    world.journal.coming.end("earlier", world.loop.time)
    world.loop.iterate()
    assert world.produced() == {PARTITION: [key()]}


def test_wait_for_appends_that_are_coming_is_bounded(world):
    """A broker that is slow with one commit holds no other up for longer."""
    world.journal.coming.begin("slow", world.loop.time)
    world.put()
    world.loop.iterate()
    world.loop.iterate(SHARE_MAX_S * 0.9)
    assert not world.channel("Append").requested
    world.loop.iterate(SHARE_MAX_S * 0.2)
    assert world.produced() == {PARTITION: [key()]}
    world.loop.iterate(LATE_S)
    world.put(SAME)
    world.loop.iterate()
    assert world.produced() == {PARTITION: [key(SAME)]}


def test_append_that_waited_for_an_earlier_one_does_not_wait_for_others(world):
    world.put()
    world.loop.iterate()
    world.journal.coming.begin("slow", world.loop.time)
    world.put(SAME)
    world.loop.iterate()
    world.loop.iterate(SHARE_MAX_S * 1.1)
    assert world.produced() == {PARTITION: [key()]}
    world.loop.iterate()
    assert world.produced() == {PARTITION: [key(SAME)]}


def test_append_that_waits_for_a_busy_leader_is_sent_to_its_new_leader():
    """The broker with the earlier append may never respond."""
    world, other = World(), state_records.state_partition(OTHER)
    world.own(PARTITION, other)
    world.put()
    world.loop.iterate()
    moved = world.put(OTHER)
    world.loop.iterate()
    assert len(world.channel("Append").requested) == 1
    world.journal.leaders[other] = 3
    world.journal.check_soon()
    world.loop.iterate()
    ((_, request, _),) = world.links.channels[3, "Append"].requested
    assert [data.index for data in request.topic_data[0].partition_data] == [other]
    assert not moved.done


def test_append_that_waits_for_a_busy_leader_is_refused_when_the_partition_is_released():
    world, other = World(), state_records.state_partition(OTHER)
    world.own(PARTITION, other)
    first = world.put()
    world.loop.iterate()
    waiting = world.put(OTHER)
    world.loop.iterate()
    world.journal.stop([other], ErrorCode.NOT_COORDINATOR, "moved")
    assert code_of(waiting) == ErrorCode.NOT_COORDINATOR
    assert world.produced() == {PARTITION: [key()]}
    world.loop.iterate()
    assert first.done
    assert not world.channel("Append").requested
    assert not world.journal._to_check


def test_all_partitions_are_identified_together_and_taken_over_by_one_request():
    """A start must be quick: nothing waits for another partition."""
    world = World()
    world.journal.take_over(range(50))
    world.loop.iterate()
    assert len(world.channel("Identify").requested) == 50
    names = {world.identify(epoch=3).transactional_id for _ in range(50)}
    assert names == {f"__proxy-share-{n}" for n in range(50)}
    world.loop.iterate()
    assert set(world.produced()) == set(range(50))
    assert world.takeovers == dict.fromkeys(range(50), TakenOver(5, 7, 3))


def test_append_to_a_partition_that_is_not_loaded_is_refused():
    world = World()
    assert code_of(world.put()) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_appends_of_one_iteration_are_sent_together(world):
    """Later ones, while it is in flight, are sent with the next request."""
    first, second = world.put(), world.put(SAME)
    assert not world.channel("Append").requested
    world.loop.iterate()
    third = world.put()
    world.loop.iterate()
    assert len(world.channel("Append").requested) == 1
    assert world.produced() == {PARTITION: [key(), key(SAME)]}
    assert (first.done, second.done, third.done) == (True, True, False)
    world.loop.iterate()
    assert world.produced() == {PARTITION: [key()]}
    assert third.result() is None


def test_one_produce_carries_all_partitions_of_a_leader():
    world = World()
    other = state_records.state_partition(OTHER)
    world.own(PARTITION, other)
    world.put()
    world.put(OTHER)
    world.loop.iterate()
    assert world.produced() == {PARTITION: [key()], other: [key(OTHER)]}


def test_one_append_with_records_of_two_state_partitions_is_an_error(world):
    with pytest.raises(LocalProtocolError):
        world.journal.append([(StateKey("group", GROUP), None), (StateKey("group", OTHER), None)])
    assert world.journal.append([]).done


def test_refusal_reaches_the_caller(world):
    promise = world.put()
    world.loop.iterate()
    world.produced(code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert code_of(promise) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_append_without_a_response_is_repeated_with_the_same_bytes(world):
    promise = world.put()
    world.loop.iterate()
    _, first, done = world.channel("Append").requested.pop()
    done(None)
    assert not promise.done
    world.loop.iterate(0.1)
    assert world.views, "its leader may have gone"
    world.journal.leaders[PARTITION] = LEADER
    world.loop.iterate(1.0)
    _, again, done = world.channel("Append").requested[-1]
    assert again.topic_data[0].partition_data[0].records == first.topic_data[0].partition_data[0].records
    world.produced()
    assert promise.result() is None


def test_moved_leader_is_looked_up(world):
    world.put()
    world.loop.iterate()
    world.produced(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.loop.iterate(0.5)
    assert world.views
    assert not world.channel("Append").requested


def test_append_at_a_silent_leader_is_sent_to_the_new_leader(world):
    """Its outcome is unknown: the same bytes again. The leader is looked up until there is one."""
    promise = world.put()
    world.loop.iterate()
    (_, first, _) = world.channel("Append").requested[0]
    lost, world.links.late = world.channel("Append"), {LEADER}
    world.loop.iterate(SILENT_S)
    for looks in range(1, 5):
        assert world.views == looks
        world.loop.iterate(CHECK_MAX_S)
    assert world.links.channels[LEADER, "Append"] is lost, "nobody else leads yet"
    world.journal.leaders[PARTITION] = 3
    world.loop.iterate(CHECK_MAX_S)
    assert (LEADER, "Append") not in world.links.channels
    world.loop.iterate(0.1)
    _, again, _ = world.links.channels[3, "Append"].requested[-1]
    assert again.topic_data[0].partition_data[0].records == first.topic_data[0].partition_data[0].records
    assert not promise.done
    world.links.channels[LEADER, "Append"] = world.links.channels[3, "Append"]
    world.produced()
    assert promise.result() is None


def test_leader_that_is_late_and_was_not_replaced_is_waited_for(world):
    """It waits for its replicas: nothing would be quicker anywhere else."""
    promise = world.put()
    world.loop.iterate()
    world.links.late = {LEADER}
    for _ in range(40):
        world.loop.iterate(0.1)
    assert len(world.channel("Append").requested) == 1
    world.produced()
    assert promise.result() is None
    world.links.late, world.views = set(), 0
    world.loop.iterate(10.0)
    assert not world.views


def test_late_response_of_an_old_leader_does_not_affect_the_new_one(world):
    world.put()
    world.loop.iterate()
    world.journal.leaders[PARTITION] = 3
    world.produced(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.loop.iterate(0.02)
    assert not world.views
    assert len(world.links.channels[3, "Append"].requested) == 1


def test_leader_that_cannot_be_dialled_is_looked_up_at_each_attempt(world):
    world.put()
    world.links.down, world.links.late = True, {LEADER}
    for looks in range(1, 5):
        world.loop.iterate(CHECK_MAX_S)
        assert world.views == looks


def test_silent_coordinator_is_looked_up_and_replaced():
    world = World()
    world.journal.take_over([PARTITION])
    world.loop.iterate()
    world.links.late = {COORDINATOR}
    world.loop.iterate(SILENT_S)
    assert world.views == 1
    assert PARTITION not in world.journal.coordinators, "only those that are not known are looked for"
    world.journal.coordinators[PARTITION] = 3
    world.loop.iterate(CHECK_MAX_S)
    world.loop.iterate(CHECK_MAX_S)
    world.links.channels[COORDINATOR, "Identify"] = world.links.channels[3, "Identify"]
    world.identify()
    world.loop.iterate()
    world.produced()
    assert PARTITION in world.takeovers


def test_unreachable_leader_is_looked_up_even_without_an_append_in_flight(world):
    """Its partitions have new leaders by then. A proxy that only dialled it again would wait for ever."""
    world.put()
    world.links.down = True
    world.loop.iterate()
    assert not world.views
    world.journal.unreachable(LEADER)
    world.loop.iterate()
    assert world.views
    world.links.down = False
    world.links.channels[3, "Append"] = world.links.channels[LEADER, "Append"]
    world.journal.leaders[PARTITION] = 3
    world.loop.iterate(1.0)
    assert world.produced() == {PARTITION: [key()]}


def test_coordinator_that_does_not_respond_is_looked_up():
    """Its transactional ids have another one by then."""
    world = World()
    world.journal.take_over([PARTITION])
    world.loop.iterate()
    _, _, done = world.channel("Identify").requested.pop()
    done(None)
    world.loop.iterate(0.1)
    assert world.views
    world.journal.coordinators[PARTITION] = COORDINATOR
    world.journal.unreachable(COORDINATOR)
    assert PARTITION not in world.journal.coordinators
    assert world.journal.leaders[PARTITION] == LEADER


def test_append_that_cannot_be_sent_is_refused_in_time(world):
    world.links.down = True
    promise = world.put()
    for _ in range(60):
        world.loop.iterate(0.25)
    assert code_of(promise) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_replaced_owner_reports_it_and_refuses_all_requests(world):
    promise = world.put()
    world.loop.iterate()
    waiting = world.put()
    world.produced(code=ErrorCode.INVALID_PRODUCER_EPOCH)
    assert world.lost == [(PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH)]
    world.journal.stop([PARTITION], ErrorCode.NOT_COORDINATOR, "another proxy")
    assert code_of(promise) == ErrorCode.NOT_COORDINATOR
    assert code_of(waiting) == ErrorCode.NOT_COORDINATOR
    assert code_of(world.put()) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_responses_of_an_earlier_ownership_change_nothing(world):
    world.put()
    world.loop.iterate()
    world.journal.stop([PARTITION], ErrorCode.NOT_COORDINATOR, "another proxy")
    world.produced(code=ErrorCode.INVALID_PRODUCER_EPOCH)
    assert not world.lost


def test_new_producer_id_waits_to_be_checked():
    world = World()
    world.journal.take_over([PARTITION])
    world.loop.iterate()
    world.identify(epoch=0)
    world.loop.iterate()
    assert world.checking == [PARTITION]
    assert (LEADER, "Append") not in world.links.channels
    world.journal.proceed(PARTITION)
    world.loop.iterate()
    assert set(world.produced()) == {PARTITION}


def test_superfluous_records_are_deleted(world):
    world.journal.forget_keys(PARTITION, [b"\0\3old"])
    world.loop.iterate()
    assert world.produced() == {PARTITION: [b"\0\3old"]}


def test_internal_error_ends_the_ownership(world):
    """Later appends could not be trusted."""
    world.journal.failed(ValueError("a bug"))
    assert world.lost == [(-1, ErrorCode.UNKNOWN_SERVER_ERROR)]


def test_shorter_producer_id_expiration_makes_keep_alives_more_frequent(world):
    world.journal.keep_alive(5.0, 1000.0)
    world.loop.iterate()
    world.loop.iterate(5.1)
    assert PARTITION in world.produced()


def test_callbacks_of_an_append_owned_by_the_journal_run_inside_its_own_call(world):
    """It is therefore applied when the caller continues; also when it is refused because ownership ends."""
    done: list[str] = []
    world.put().on_settled(lambda: done.append("stored"), world.journal)
    world.loop.iterate()
    world.produced()
    assert done == ["stored"]
    world.put().on_settled(lambda: done.append("refused"), world.journal)
    world.journal.stop([PARTITION], ErrorCode.NOT_COORDINATOR, "another proxy")
    assert done == ["stored", "refused"]


def test_error_in_a_callback_of_an_append_ends_the_ownership_and_not_the_channel(world):
    """Other callers whose appends were stored by the same request are notified."""
    reported: list[bool] = []

    def fails() -> None:
        raise ValueError("a bug")

    world.put().on_settled(fails, world.journal)
    world.put().on_settled(lambda: reported.append(True), world.journal)
    world.loop.iterate()
    world.produced()
    assert world.lost == [(-1, ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert reported == [True]


def test_append_to_another_log_is_reported_and_not_confirmed(world: World) -> None:
    """The topic was deleted and created again since: what is appended there does not count at a replay."""
    promise = world.put()
    world.loop.iterate()
    world.produced(offset=0)
    assert world.went_back == [PARTITION]
    assert not promise.done
    world.journal.stop([PARTITION], ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the topic is another")
    with pytest.raises(JournalRefused):
        promise.result()
