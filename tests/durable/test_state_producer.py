"""The producer of a state partition: repeated and refused appends, and their sequence numbers."""

from __future__ import annotations

import itertools
import random

import pytest
from kafka_share_proxy.durable import state_producer
from kafka_share_proxy.durable.produce_errors import PRODUCE_ERRORS, Follows
from kafka_share_proxy.durable.producer_requests import Append, Identify, Lost, Refused, Stored, TakenOver, WentBack
from kafka_share_proxy.durable.state_producer import StateProducer, WriterStage
from kafka_share_proxy.wire.errors import ErrorCode, LocalProtocolError
from kafka_share_proxy.wire.records.records import Record, decode_records, iter_batches

from tests.support.state_leader import (
    AFTER_APPEND,
    BEFORE_APPEND,
    CALM,
    CUT,
    NOT_ALLOWED,
    UNSENT,
    StateLeader,
)

OK = ErrorCode.NONE


def takeover(pid, epoch):
    return Record(b"takeover-%d-%d" % (pid, epoch), b"owner")


def new_producer(**options) -> StateProducer:
    return StateProducer(takeover, Record(b"alive"), **options)


def ready(now=0.0, **options) -> StateProducer:
    """One that owns its partition as (7, 3)."""
    producer = new_producer(**options)
    assert producer.next_request(now) == Identify(-1, -1)
    assert producer.identified(OK, 7, 3, now) == []
    assert batch_of(producer.next_request(now)).keys == [b"takeover-7-3"]
    assert producer.appended(OK, 40, now) == [TakenOver(40, 7, 3)]
    assert producer.stage is WriterStage.READY
    return producer


class Batch:
    def __init__(self, data):
        (self.header,) = iter_batches(data)
        self.keys = [record.key for record in decode_records(data)]
        self.sequence = self.header.base_sequence
        self.epoch = self.header.producer_epoch


def batch_of(request) -> Batch:
    assert isinstance(request, Append)
    return Batch(request.batch)


def add(producer, *tokens, now=0.0):
    for token in tokens:
        assert producer.add([Record(token.encode(), b"v")], token, now)


def accept(producer, now):
    """Append after all others."""
    return producer.appended(OK, producer._log_end, now)


def report(producer, outcome, now, offset=50):
    if outcome is CUT:
        return producer.in_flight(now)
    if outcome is UNSENT:
        return producer.unsent(now)
    return producer.appended(outcome, offset, now)


def test_takeover_record_is_the_first_append_of_its_epoch():
    """Sequence 0, and nothing else with it (durable/README.md rule 13)."""
    producer = new_producer()
    add(producer, "early")
    producer.next_request(0.0)
    producer.identified(OK, 7, 3, 0.0)
    first = batch_of(producer.next_request(0.0))
    assert (first.keys, first.sequence, first.epoch) == ([b"takeover-7-3"], 0, 3)
    producer.appended(OK, 40, 0.0)
    second = batch_of(producer.next_request(0.0))
    assert (second.keys, second.sequence) == ([b"early"], 1)


def test_all_waiting_records_are_sent_with_the_next_append():
    """One produce per round trip, however many callers."""
    producer = ready()
    add(producer, "a")
    assert batch_of(producer.next_request(1.0)).keys == [b"a"]
    add(producer, "b", "c", "d")
    assert producer.next_request(1.0) is None
    assert producer.appended(OK, 41, 1.0) == [Stored("a")]
    following = batch_of(producer.next_request(1.0))
    assert (following.keys, following.sequence) == ([b"b", b"c", b"d"], 2)
    assert producer.appended(OK, 42, 1.0) == [Stored("b"), Stored("c"), Stored("d")]
    assert producer.next_request(1.0) is None


def test_records_beyond_the_batch_limit_are_sent_with_the_next_append():
    producer = ready()
    for token in range(4):
        producer.add([Record(b"k", bytes(state_producer.BATCH_BYTES_MAX // 3))], token, 0.0)
    sizes = []
    for _ in range(3):
        request = producer.next_request(0.0)
        if request is not None:
            sizes.append(len(accept(producer, 0.0)))
    assert sizes == [2, 2]


def test_batches_fit_max_message_bytes_of_the_topic():
    """120 share partitions with fragmented windows together, 1.2 MB: no batch is larger than the topic accepts."""
    producer, sizes, stored = ready(), [], 0
    producer.limit_batches(20_000)
    for number in range(120):
        producer.add([Record(b"k%d" % number, random.Random(number).randbytes(10_000))], number, 0.0)
    while (request := producer.next_request(0.0)) is not None:
        sizes.append(len(request.batch))
        stored += len(accept(producer, 0.0))
    assert stored == 120
    assert max(sizes) <= 20_000


@pytest.mark.parametrize(("size", "compressed"), [(100, False), (state_producer.COMPRESS_BYTES + 50, True)])
def test_batches_of_4_kib_or_more_are_compressed(size, compressed):
    producer = ready()
    value = bytes(range(50)) * (size // 50)
    producer.add([Record(b"k", value)], "a", 0.0)
    request = producer.next_request(0.0)
    assert (len(request.batch) < size) == compressed
    assert [record.value for record in decode_records(request.batch)] == [value]


def rows(*follows):
    """The codes whose rows say so."""
    return [row.code for row in PRODUCE_ERRORS if row.follows in follows]


WITHOUT_ROW = sorted(set(ErrorCode) - {row.code for row in PRODUCE_ERRORS} - {OK})


@pytest.mark.parametrize("outcome", [CUT, *rows(Follows.UNKNOWN), *WITHOUT_ROW])
def test_unknown_outcome_repeats_the_same_bytes(outcome):
    """It may be in the log: neither refused nor replaced, whatever the later attempts return, until it is accepted."""
    producer = ready()
    add(producer, "a")
    first = producer.next_request(0.0)
    assert report(producer, outcome, 0.0) == []
    add(producer, "b")
    now = 0.0
    definite = rows(Follows.NOT_NOW, Follows.NEVER, Follows.TOO_LARGE)
    for later in (ErrorCode.NOT_LEADER_OR_FOLLOWER, UNSENT, *definite, CUT, outcome):
        now += 100.0
        assert producer.next_request(now) == first
        assert report(producer, later, now) == []
    now += 100.0
    assert producer.next_request(now) == first
    assert producer.appended(OK, 41, now) == [Stored("a")]
    assert batch_of(producer.next_request(now)).sequence == 2


@pytest.mark.parametrize("later", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_refusal_of_a_repeated_append_is_not_definite(later):
    """Appended and refused with 6, then 19 for longer than anything is tried: still the same content, or a new
    epoch.
    """
    producer, leader = ready(), StateLeader()
    add(producer, "a")
    leader.append(producer.next_request(0.0).batch)
    assert producer.appended(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, 0.0) == []
    for now in (1.0, state_producer.REFUSE_AFTER_S, 2 * state_producer.REFUSE_AFTER_S):
        producer.next_request(now)
        assert producer.appended(later, -1, now) == []
    add(producer, "b", now=now)
    again = producer.next_request(20.0)
    assert batch_of(again).keys == [b"a"]
    assert leader.append(again.batch) == OK
    assert len(leader.log) == 1


@pytest.mark.parametrize("code", rows(Follows.NEVER))
def test_sequence_numbers_of_a_definitely_refused_batch_are_used_again(code):
    """Nothing was ever appended: the next content may have the number."""
    producer = ready()
    add(producer, "a", "b")
    producer.next_request(0.0)
    assert producer.appended(code, -1, 0.0) == [Refused("a", code), Refused("b", code)]
    add(producer, "c")
    following = batch_of(producer.next_request(0.0))
    assert (following.keys, following.sequence, following.epoch) == ([b"c"], 1, 3)


@pytest.mark.parametrize("outcome", [*rows(Follows.NOT_NOW), UNSENT])
def test_temporary_error_is_retried_for_a_while_and_then_refused(outcome):
    producer = ready()
    add(producer, "a")
    first = producer.next_request(0.0)
    assert report(producer, outcome, 0.0) == []
    assert producer.next_request(0.0) is None
    assert producer.next_deadline() == pytest.approx(state_producer.RETRY_MIN_S)
    assert producer.next_request(1.0) == first
    assert report(producer, outcome, 1.0) == []
    assert producer.next_request(state_producer.REFUSE_AFTER_S) == first
    ((token, code),) = report(producer, outcome, state_producer.REFUSE_AFTER_S)
    assert token == "a"
    assert code == (ErrorCode.COORDINATOR_NOT_AVAILABLE if outcome is UNSENT else outcome)
    add(producer, "b", now=6.0)
    assert batch_of(producer.next_request(10.0)).sequence == 1


@pytest.mark.parametrize("code", rows(Follows.TOO_LARGE))
def test_batch_that_is_too_large_is_halved_until_it_is_stored(code):
    """No entry fails because of another's size; one that is too large alone is refused."""
    producer, largest, stored, refused = ready(), 150, [], []
    for token, size in (("a", 50), ("b", 60), ("c", 500), ("d", 10), ("e", 10)):
        producer.add([Record(token.encode(), bytes(size))], token, 0.0)
    for _ in range(20):
        request = producer.next_request(1.0)
        if request is None:
            break
        fits = len(request.batch) <= largest
        for outcome in accept(producer, 1.0) if fits else producer.appended(code, -1, 1.0):
            (stored if isinstance(outcome, Stored) else refused).append(outcome.token)
    assert (stored, refused) == (["a", "b", "d", "e"], ["c"])


def test_too_large_after_an_unknown_outcome_begins_a_new_epoch():
    """The first attempt may be in the log: its sequence numbers are not used for parts of it."""
    producer = ready()
    add(producer, "a", "b")
    producer.next_request(0.0)
    producer.in_flight(0.0)
    producer.next_request(1.0)
    assert producer.appended(ErrorCode.MESSAGE_TOO_LARGE, -1, 1.0) == []
    assert producer.next_request(1.0) == Identify(7, 3)
    producer.identified(OK, 7, 4, 1.0)
    producer.next_request(1.0)
    producer.appended(OK, 50, 1.0)
    assert batch_of(producer.next_request(1.0)).keys == [b"a"]
    assert producer.appended(ErrorCode.MESSAGE_TOO_LARGE, -1, 1.0) == [], "the first attempt may have stored it"
    assert batch_of(producer.next_request(2.0)).keys == [b"a"]
    assert producer.appended(OK, 51, 2.0) == [Stored("a")]
    assert batch_of(producer.next_request(2.0)).keys == [b"b"]


@pytest.mark.parametrize("code", rows(Follows.START_AGAIN))
def test_producer_that_the_broker_forgot_takes_over_again_with_the_same_content(code):
    """45: InitProducerId with our own identity shows whether we were replaced; then a new epoch begins."""
    producer = ready()
    add(producer, "a", "b")
    producer.next_request(0.0)
    producer.in_flight(0.0)
    producer.next_request(1.0)
    assert producer.appended(code, -1, 1.0) == []
    add(producer, "c", now=1.0)
    assert producer.next_request(2.0) == Identify(7, 3)
    producer.identified(OK, 7, 4, 2.0)
    assert batch_of(producer.next_request(2.0)).keys == [b"takeover-7-4"]
    assert producer.appended(OK, 60, 2.0) == [TakenOver(60, 7, 4)]
    again = batch_of(producer.next_request(2.0))
    assert (again.keys, again.sequence, again.epoch) == ([b"a", b"b", b"c"], 1, 4)
    assert producer.appended(ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, 2.0) == [], (
        "an earlier attempt may have stored it"
    )


@pytest.mark.parametrize("code", rows(Follows.FENCED))
def test_fenced_producer_sends_nothing_any_more(code):
    producer = ready()
    add(producer, "a")
    producer.next_request(0.0)
    add(producer, "b")
    assert producer.appended(code, -1, 0.0) == [Lost(code)]
    assert producer.next_request(1e9) is None
    assert producer.tokens() == ["a", "b"]
    assert not producer.add([Record(b"k")], "c", 0.0)


def test_producer_fenced_by_init_producer_id_sends_nothing_any_more():
    producer = ready()
    add(producer, "a")
    producer.next_request(0.0)
    producer.appended(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, 0.0)
    producer.next_request(0.0)
    assert producer.identified(ErrorCode.PRODUCER_FENCED, -1, -1, 0.0) == [Lost(ErrorCode.PRODUCER_FENCED)]


def test_init_producer_id_is_repeated_after_a_temporary_error():
    """51 while an old transaction ends, 14-16 while the coordinator moves, no response: repeating changes nothing."""
    producer, now = new_producer(), 0.0
    for code in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR, CUT, UNSENT):
        assert producer.next_request(now) == Identify(-1, -1)
        if code is CUT:
            producer.in_flight(now)
        elif code is UNSENT:
            producer.unsent(now)
        else:
            assert producer.identified(code, -1, -1, now) == []
        assert producer.next_request(now) is None
        now += 10.0
    assert producer.next_request(now) == Identify(-1, -1)


def test_keep_alive_record_is_appended_before_the_producer_expires():
    """A broker forgets a silent producer, and the fence with it; the takeover record itself is never written twice."""
    producer = ready(keep_alive_s=100.0)
    assert producer.next_deadline() == 100.0
    assert producer.next_request(99.0) is None
    alive = batch_of(producer.next_request(100.0))
    assert (alive.keys, alive.sequence) == ([b"alive"], 1)
    assert producer.appended(OK, 41, 100.0) == []
    assert producer.next_deadline() == 200.0


def test_shorter_expiration_times_apply_immediately():
    """The brokers' settings are known only later."""
    producer = ready()
    producer.renew_every(100.0, 30.0, 10.0)
    assert producer.next_deadline() == 40.0
    producer.renew_every(20.0, 300.0, 10.0)
    assert producer.next_deadline() == 30.0
    producer.renew_every(500.0, 500.0, 10.0)
    assert producer.next_deadline() == 30.0, "what is due stays due"


def test_producer_epoch_is_renewed_before_the_transactional_id_expires():
    """A transactional id expires without InitProducerId requests; appends do not count."""
    producer = ready(identity_s=50.0)
    add(producer, "a", now=50.0)
    assert producer.next_request(50.0) == Identify(7, 3)
    producer.identified(OK, 7, 4, 50.0)
    assert batch_of(producer.next_request(50.0)).keys == [b"takeover-7-4"]
    assert producer.appended(OK, 41, 50.0) == [TakenOver(41, 7, 4)]
    assert batch_of(producer.next_request(50.0)).keys == [b"a"]
    producer.appended(OK, 42, 50.0)
    assert producer.next_deadline() == 100.0


def test_records_that_wait_too_long_for_an_append_with_unknown_outcome_are_refused():
    producer = ready()
    add(producer, "a")
    producer.next_request(0.0)
    add(producer, "b", now=1.0)
    producer.in_flight(1.0)
    assert producer.overdue(state_producer.WAIT_MAX_S) == []
    assert producer.overdue(state_producer.WAIT_MAX_S + 1.0) == [Refused("b", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert producer.tokens() == ["a"]


def test_waiting_bytes_are_limited():
    producer = new_producer()
    size = state_producer.WAITING_BYTES_MAX // 2
    assert producer.add([Record(b"k", bytes(size))], 1, 0.0)
    assert not producer.add([Record(b"k", bytes(size))], 2, 0.0)


def test_new_producer_id_takes_over_only_after_a_check_for_an_earlier_owner():
    """It does not fence a producer with another id: the caller checks for one before the takeover record is written."""
    producer = new_producer()
    add(producer, "a")
    producer.next_request(0.0)
    producer.identified(OK, 7, 0, 0.0)
    assert producer.stage is WriterStage.CHECKING
    assert producer.next_request(1.0) is None
    producer.proceed()
    assert batch_of(producer.next_request(1.0)).keys == [b"takeover-7-0"]
    with pytest.raises(LocalProtocolError):
        producer.proceed()


def test_announced_request_type_is_that_of_the_next_request():
    """The way is found before the request is made."""
    producer = new_producer()
    assert producer.wants(0.0) is Identify
    producer.next_request(0.0)
    assert producer.wants(0.0) is None
    producer.identified(OK, 7, 1, 0.0)
    assert producer.wants(0.0) is Append
    producer.next_request(0.0)
    accept(producer, 0.0)
    assert producer.wants(0.0) is None
    add(producer, "a")
    assert producer.wants(0.0) is Append
    assert batch_of(producer.next_request(0.0)).keys == [b"a"]


def test_sequence_numbers_wrap_to_0():
    producer = ready()
    producer._sequence = state_producer.SEQUENCES - 1
    add(producer, "a")
    assert batch_of(producer.next_request(0.0)).sequence == state_producer.SEQUENCES - 1
    accept(producer, 0.0)
    add(producer, "b")
    assert batch_of(producer.next_request(0.0)).sequence == 0


def test_response_without_a_request_is_an_internal_error():
    with pytest.raises(LocalProtocolError):
        ready().appended(OK, 1, 0.0)


def test_records_that_wait_for_an_unknown_append_that_was_put_back_are_refused_too():
    """It is at the head of what waits while the writer takes over again; it cannot be refused itself."""
    producer = ready()
    add(producer, "a")
    producer.next_request(0.0)
    producer.in_flight(0.0)
    add(producer, "b", now=1.0)
    producer.next_request(1.0)
    producer.appended(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, 1.0)
    producer.next_request(1.0)
    late = state_producer.WAIT_MAX_S + 1.0
    assert producer.next_deadline() == late
    assert producer.overdue(late) == [Refused("b", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert producer.tokens() == ["a"]
    assert producer.next_deadline() == float("inf")


@pytest.mark.parametrize("offset", [0, 40, 42])
def test_append_at_an_offset_already_in_use_reports_another_log(offset):
    """The topic was created again, or the end of the log is lost: what is appended there does not count at a replay."""
    producer = ready()
    add(producer, "a", "b")
    producer.next_request(0.0)
    assert producer.appended(OK, 41, 0.0) == [Stored("a"), Stored("b")]
    add(producer, "c")
    producer.next_request(1.0)
    assert producer.appended(OK, offset, 1.0) == [WentBack(offset)]
    assert producer.tokens() == ["c"], "whoever waits is not told that it is stored"
    assert producer.wants(100.0) is None


def test_unknown_offsets_and_gaps_are_ignored():
    """Control records and others' appends lie in between; a broker may not know the offset of a repetition."""
    producer = ready()
    for offset in (41, -1, 90):
        add(producer, "a")
        producer.next_request(0.0)
        assert producer.appended(OK, offset, 0.0) == [Stored("a")]


def story(seed, steps=400):
    """Run one writer and one leader; the broker appends and returns 3, 6, 7, 20, 56, -1 or nothing, refuses a repeated
    append, forgets the writer, loses unreplicated records, and gets a request late.
    """
    choose, leader, producer, numbers = random.Random(seed), StateLeader(), new_producer(), itertools.count()
    stored, refused, late, now = set(), set(), [], 0.0
    for step in range(steps):
        now += choose.choice((0.3, 1.5))
        if choose.random() < 0.6:
            add(producer, f"r{next(numbers)}", now=now)
        if choose.random() < 0.1:
            leader.lose_tail()
        if late and choose.random() < 0.1:
            leader.append(choose.choice(late))
        if producer.stage is WriterStage.CHECKING:
            producer.proceed()
        kinds = ([CALM], AFTER_APPEND, BEFORE_APPEND, [NOT_ALLOWED])
        weather = choose.choice(choose.choices(kinds, (5, 4, 4, 1))[0])
        outcomes = [*producer.overdue(now), *leader.exchange(producer, now, weather)]
        if weather.response is CUT and producer._batch is not None:
            late.append(producer._batch.data)
        stored |= {o.token for o in outcomes if isinstance(o, Stored)}
        refused |= {o.token for o in outcomes if isinstance(o, Refused)}
        if step % 50 == 49:
            assert stored <= keys_in(leader.log[: leader.committed])
            assert not refused & keys_in(leader.log)
    return stored, refused


def all_stories():
    for seed in range(40):
        story(seed)


def keys_in(batches):
    return {record.key.decode() for data in batches for record in decode_records(data)}


@pytest.mark.parametrize("seed", range(40))
def test_no_acknowledged_record_is_lost_for_any_response_of_the_broker(seed):
    """Every confirmed record is in the log, no refused one is; no sequence number is ever used for two contents."""
    stored, refused = story(seed)
    assert stored
    assert refused


@pytest.mark.parametrize("code", [weather.response for weather in AFTER_APPEND if weather.response is not CUT])
def test_the_stories_find_a_code_that_is_wrongly_definite(code, monkeypatch):
    known = state_producer.what_follows
    monkeypatch.setattr(
        state_producer, "what_follows", lambda requested: Follows.NOT_NOW if requested == code else known(requested)
    )
    with pytest.raises(AssertionError):
        all_stories()


@pytest.mark.parametrize("outcome", [CUT, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_attempts_are_at_most_250_ms_apart_however_long_a_leader_is_unavailable(outcome):
    producer, now = ready(), 0.0
    add(producer, "a")
    for _ in range(12):
        assert producer.next_request(now) is not None
        report(producer, outcome, now)
        assert producer.next_deadline() - now <= 0.25
        now += 0.25
