"""Transactions of one state partition: visible together or not at all, whatever becomes of each request."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence

import pytest
from kafka_share_proxy.durable import state_transactions
from kafka_share_proxy.durable.interfaces import OutsideRecords
from kafka_share_proxy.durable.partition_log import OwnerEpoch
from kafka_share_proxy.durable.producer_requests import AppendInTransaction, Identify, Lost, Outcome, Refused, Stored
from kafka_share_proxy.durable.state_producer import BATCH_BYTES_MAX, StateProducer, WriterStage
from kafka_share_proxy.durable.state_transactions import AddPartitions, End, Locate, Write
from kafka_share_proxy.wire.errors import ErrorCode, LocalProtocolError
from kafka_share_proxy.wire.records.records import Record
from kafka_share_proxy.wire.values import TopicPartition

from tests.support.transaction_brokers import CALM, STATE, Brokers, Fate

OK = ErrorCode.NONE
DLQ = TopicPartition("dlq", 0)
DLQ1 = TopicPartition("dlq", 1)
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
LOST_RESPONSE = Fate(code=None)
CUT = Fate(arrives=False, code=None)
STEPS = ("add", "write", "store")


def owner_epoch_of(key: bytes) -> OwnerEpoch | None:
    if not key.startswith(b"T"):
        return None
    return OwnerEpoch(*map(int, key[1:].split(b"/")))


def new_producer() -> StateProducer:
    return StateProducer(lambda pid, epoch: Record(b"T%d/%d" % (pid, epoch), b"owner"), Record(b"alive", b""))


class World:
    """One writer with its brokers, and a clock."""

    def __init__(self) -> None:
        self.brokers = Brokers()
        self.now = 0.0
        self.fates: dict[str, list[Fate]] = {}
        """Fates of the next requests, by name."""
        self.outcomes: dict[object, ErrorCode] = {}
        self.lost: ErrorCode | None = None
        self.own()

    def own(self) -> None:
        """Take over with a new writer."""
        self.producer, self.lost = new_producer(), None
        self.until(lambda: self.producer.stage is WriterStage.READY)
        self.brokers.sent.clear()

    def fate(self, name: str) -> Fate:
        fates = self.fates.get(name)
        return fates.pop(0) if fates else CALM

    def iterate(self, seconds: float = 0.0, fate: Callable[[str], Fate] | None = None) -> None:
        self.now += seconds
        for outcome in self.brokers.exchange(self.producer, self.now, fate or self.fate):
            self.note(outcome)
        if self.producer.stage is WriterStage.CHECKING:
            self.producer.proceed()

    def note(self, outcome: Outcome) -> None:
        if isinstance(outcome, Stored | Refused):
            assert outcome.token not in self.outcomes, "settled twice"
            self.outcomes[outcome.token] = OK if isinstance(outcome, Stored) else outcome.code
        elif isinstance(outcome, Lost):
            self.lost = outcome.code

    def until(self, condition: Callable[[], object], step_s: float = 0.05) -> None:
        for _ in range(3000):
            if condition():
                return
            self.iterate(step_s)
        raise AssertionError("it does not end")

    def put(self, token: str) -> None:
        assert self.producer.add([Record(b"key", token.encode())], token, self.now)

    def put_with(self, token: str, *places: TopicPartition, key: str = "key") -> ErrorCode:
        outside = [OutsideRecords(*place, [Record(None, token.encode())]) for place in places or (DLQ,)]
        return self.producer.add_transaction([Record(key.encode(), token.encode())], outside, token, self.now)

    def result(self, token: str) -> ErrorCode:
        self.until(lambda: token in self.outcomes or self.lost is not None)
        return self.outcomes.get(token, self.lost or OK)

    def stored(self) -> dict[bytes, bytes]:
        return self.brokers.stored(owner_epoch_of)

    def letters(self, place: TopicPartition = DLQ) -> list[bytes]:
        return dict(self.brokers.outside()).get(place, [])


@pytest.fixture
def world() -> World:
    return World()


def test_transaction_has_outside_records_before_the_state_and_then_its_commit(world: World) -> None:
    assert world.put_with("one", DLQ, DLQ1) == OK
    assert world.result("one") == OK
    assert world.brokers.sent == ["add", "write", "write", "store", "commit"]
    assert world.stored() == {b"key": b"one"}
    assert world.letters() == world.letters(DLQ1) == [b"one"]


def test_plain_appends_go_on_until_the_state_is_sent(world: World) -> None:
    """A plain append in the partition of an open transaction gets INVALID_TXN_STATE (ProducerAppendInfo)."""
    world.put_with("one")
    (request,) = world.producer.transaction_requests(0.0, {DLQ})
    assert isinstance(request, AddPartitions)
    world.producer.transactions.request_sent(request, 0.0)
    world.put("plain")
    append = world.producer.next_request(world.now)
    assert append is not None
    assert not isinstance(append, AppendInTransaction | Identify)
    _, offset = world.brokers.append(STATE, append.batch)
    for outcome in world.producer.appended(OK, offset, world.now):
        world.note(outcome)
    assert world.outcomes == {"plain": OK}


def test_plain_appends_wait_from_the_state_of_a_transaction_to_its_commit(world: World) -> None:
    world.fates["commit"] = [CUT, CUT]
    world.put_with("one")
    world.until(lambda: "commit" in world.brokers.sent)
    world.put("after")
    assert world.producer.wants(world.now) is None
    assert world.result("one") == OK
    assert world.result("after") == OK
    assert world.stored() == {b"key": b"after"}


def test_plain_append_before_the_marker_is_repeated(world: World) -> None:
    """EndTxn returns when the decision is durable. Markers follow."""
    world.brokers.markers_wait = True
    world.put_with("one")
    assert world.result("one") == OK
    world.put("after")
    for _ in range(5):
        world.iterate(0.01)
    assert "after" not in world.outcomes
    assert world.brokers.sent.count("append") > 1
    world.brokers.write_markers()
    assert world.result("after") == OK


def test_plain_append_is_refused_if_the_marker_stays_away(world: World) -> None:
    world.brokers.markers_wait = True
    world.put_with("one")
    assert world.result("one") == OK
    world.put("after")
    assert world.result("after") == UNAVAILABLE
    assert world.now < 10


def test_next_transaction_begins_after_the_markers_of_the_one_before(world: World) -> None:
    world.brokers.markers_wait = True
    for token in ("one", "two"):
        world.put_with(token)
    assert world.result("one") == OK
    for _ in range(5):
        world.iterate(0.01)
    assert "two" not in world.outcomes
    world.brokers.write_markers()
    world.until(lambda: world.brokers.sent.count("commit") == 2)
    world.brokers.write_markers()
    assert world.result("two") == OK
    assert world.letters() == [b"one", b"two"]


@pytest.mark.parametrize("step", [*STEPS, "commit"])
@pytest.mark.parametrize("fate", [LOST_RESPONSE, CUT], ids=["response lost", "request lost"])
def test_request_without_a_response_is_repeated(world: World, step: str, fate: Fate) -> None:
    world.fates[step] = [fate, fate]
    world.put_with("one")
    assert world.result("one") == OK
    world.put("after")
    assert world.result("after") == OK
    world.put_with("two")
    assert world.result("two") == OK
    assert world.letters() == [b"one", b"two"]
    assert world.stored() == {b"key": b"two"}


REFUSALS = [
    ("add", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ("add", ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ("add", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ("add", ErrorCode.INVALID_PRODUCER_ID_MAPPING, UNAVAILABLE),
    ("write", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ("write", ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ("write", ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.MESSAGE_TOO_LARGE),
    ("write", ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE),
    ("write", ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD),
    ("write", ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS),
    ("write", ErrorCode.KAFKA_STORAGE_ERROR, UNAVAILABLE),
    ("write", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ("store", ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.MESSAGE_TOO_LARGE),
    ("store", ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ("store", ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    ("store", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ("store", ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS),
    ("store", ErrorCode.REQUEST_TIMED_OUT, UNAVAILABLE),
]


@pytest.mark.parametrize(("step", "code", "refusal"), REFUSALS, ids=lambda value: str(getattr(value, "name", value)))
def test_refusal_before_the_commit_aborts(world: World, step: str, code: ErrorCode, refusal: ErrorCode) -> None:
    """Nothing is visible, and both the state partition and the next transaction continue."""
    world.fates[step] = [Fate(arrives=False, code=code)] * 1000
    world.put_with("refused")
    assert world.result("refused") == refusal
    assert world.now < 30
    world.fates.clear()
    assert world.letters() == []
    assert world.stored() == {}
    world.put("plain")
    world.put_with("next")
    assert world.result("plain") == OK
    assert world.result("next") == OK
    assert world.letters() == [b"next"]
    assert world.lost is None


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("fate", [LOST_RESPONSE, CUT], ids=["response lost", "request lost"])
def test_unknown_outcome_before_the_commit_is_aborted_in_time(world: World, step: str, fate: Fate) -> None:
    """A new epoch follows, because the sequence numbers are in doubt (durable/README.md rule 9)."""
    world.fates[step] = [fate] * 10_000
    world.put_with("doubtful")
    assert world.result("doubtful") == UNAVAILABLE
    assert world.now < state_transactions.OPEN_MAX_S + 1
    world.fates.clear()
    world.put_with("next")
    assert world.result("next") == OK
    assert "identify" in world.brokers.sent
    assert world.letters() == [b"next"]
    assert world.stored() == {b"key": b"next"}


def test_commit_that_arrives_late_does_not_commit_the_next_transaction(world: World) -> None:
    """EndTxn names no transaction: a new epoch refuses the one that is still on its way."""
    world.fates["commit"] = [Fate(arrives=False, code=None, arrives_late=True)]
    world.put_with("one")
    assert world.result("one") == OK
    world.put_with("two")
    world.until(lambda: world.brokers.sent.count("write") == 2)
    world.brokers.arrive()
    assert world.letters() == [b"one"]
    assert world.result("two") == OK
    assert world.letters() == [b"one", b"two"]


def test_abort_is_repeated_until_its_outcome_is_known(world: World) -> None:
    world.fates["write"] = [Fate(arrives=False, code=ErrorCode.MESSAGE_TOO_LARGE)]
    world.fates["abort"] = [LOST_RESPONSE, CUT, Fate(arrives=False, code=ErrorCode.NOT_COORDINATOR)]
    world.put_with("refused")
    assert world.result("refused") == ErrorCode.MESSAGE_TOO_LARGE
    assert world.brokers.sent.count("abort") == 4
    assert not world.brokers.logs[STATE].is_open
    assert world.letters() == []


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
@pytest.mark.parametrize("step", [*STEPS, "commit"])
def test_fenced_writer_stops(world: World, step: str, code: ErrorCode) -> None:
    world.fates[step] = [Fate(arrives=False, code=code)]
    world.put_with("late")
    assert world.result("late") == code
    assert world.producer.stage is WriterStage.LOST
    assert world.producer.tokens() == ["late"]
    assert world.put_with("more") == UNAVAILABLE


@pytest.mark.parametrize("code", [ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
def test_commit_with_an_unexpected_error_gives_the_partition_up(world: World, code: ErrorCode) -> None:
    """Only the log shows what is visible: the next takeover reads it."""
    world.fates["commit"] = [Fate(arrives=True, code=code)]
    world.put_with("one")
    assert world.result("one") == code
    world.own()
    assert world.stored() == {b"key": b"one"}
    assert world.letters() == [b"one"]


@pytest.mark.parametrize("requests", range(1, 8))
def test_takeover_ends_the_open_transaction_of_the_last_owner(requests: int) -> None:
    """The owner dies after so many requests: the state and the outside partition agree, and late requests fail."""
    world = World()
    world.put("before")
    world.result("before")
    world.brokers.sent.clear()
    world.put_with("one", DLQ, DLQ1)
    done = 0

    def dying(_name: str) -> Fate:
        nonlocal done
        done += 1
        return CALM if done < requests else Fate(arrives=False, code=None, arrives_late=True)

    while len(world.brokers.sent) < min(requests, 5):
        world.iterate(0.01, dying)
    world.own()
    world.brokers.arrive()
    is_committed = world.stored() == {b"key": b"one"}
    assert is_committed or world.stored() == {b"key": b"before"}
    assert is_committed == (requests > 5)
    assert world.letters() == world.letters(DLQ1) == ([b"one"] if is_committed else [])
    world.put_with("two")
    assert world.result("two") == OK
    assert world.stored() == {b"key": b"two"}


def test_renewal_of_the_identity_waits_for_the_end_of_a_transaction(world: World) -> None:
    """InitProducerId would abort it (TransactionCoordinator.prepareInitProducerIdTransit)."""
    world.put_with("one")
    world.iterate()
    world.producer.renew_every(1e9, 60.0, world.now - 60.0)
    assert world.producer.wants(world.now) is not Identify
    assert world.result("one") == OK
    world.until(lambda: "identify" in world.brokers.sent)
    world.put_with("two")
    assert world.result("two") == OK
    assert world.letters() == [b"one", b"two"]


def test_plain_append_that_needs_a_new_epoch_aborts_the_transaction(world: World) -> None:
    """45: the leader of the state partition forgot the producer."""
    world.fates["add"] = [CUT] * 3
    world.fates["append"] = [Fate(arrives=False, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)]
    world.put_with("one")
    world.put("plain")
    assert world.result("plain") == OK
    assert world.result("one") == UNAVAILABLE
    assert world.stored() == {b"key": b"plain"}
    assert world.letters() == []
    assert world.lost is None


def test_transactions_that_wait_too_long_are_refused(world: World) -> None:
    world.fates["commit"] = [CUT] * 100
    for token in ("one", "two"):
        world.put_with(token)
    assert world.result("two") == UNAVAILABLE
    assert world.now <= state_transactions.WAIT_MAX_S + 1
    assert world.result("one") == OK
    assert world.letters() == [b"one"]


def test_limits_of_a_transaction(world: World) -> None:
    def offer(outside: Sequence[OutsideRecords], state: Sequence[Record] = (Record(b"k", b"v"),)) -> ErrorCode:
        return world.producer.add_transaction(state, outside, object(), 0.0)

    large = Record(None, bytes(state_transactions.OUTSIDE_BYTES_MAX))
    many = [Record(None, b"")] * (state_transactions.OUTSIDE_RECORDS_MAX + 1)
    wide = [OutsideRecords("t", n, [Record()]) for n in range(state_transactions.OUTSIDE_PARTITIONS_MAX + 1)]
    fits = [OutsideRecords("t", 0, [Record()])]
    assert offer([OutsideRecords("t", 0, [large])]) == ErrorCode.MESSAGE_TOO_LARGE
    assert offer([OutsideRecords("t", 0, many)]) == ErrorCode.MESSAGE_TOO_LARGE
    assert offer(wide) == ErrorCode.MESSAGE_TOO_LARGE
    assert offer(fits, [Record(b"k", bytes(BATCH_BYTES_MAX // 2))] * 2) == ErrorCode.MESSAGE_TOO_LARGE
    assert [offer(fits) for _ in range(state_transactions.WAITING_MAX + 1)][-2:] == [OK, UNAVAILABLE]


@pytest.mark.parametrize("outside", [[OutsideRecords("t", 0, [])], [OutsideRecords("t", 0, [Record()])] * 2, []])
def test_transaction_has_records_for_each_of_its_partitions(world: World, outside: list[OutsideRecords]) -> None:
    state = [Record(b"k")] if outside else []
    with pytest.raises(LocalProtocolError):
        world.producer.add_transaction(state, outside, "token", 0.0)


def test_leaders_are_looked_up_before_the_transaction_begins(world: World) -> None:
    world.put_with("one", DLQ, DLQ1)
    transactions = world.producer.transactions
    assert world.producer.transaction_requests(0.0, {DLQ}) == [Locate(("dlq",))]
    transactions.request_sent(Locate(("dlq",)), 0.0)
    assert transactions.requests(0.0, {DLQ}) == []
    assert transactions.located([], 0.0) == []
    assert transactions.requests(0.0, {DLQ, DLQ1}) == [AddPartitions((DLQ, DLQ1))]


@pytest.mark.parametrize(
    ("code", "seconds"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0.0),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, state_transactions.UNKNOWN_TOPIC_S),
    ],
)
def test_topic_that_is_not_found_refuses_without_a_transaction(world: World, code: ErrorCode, seconds: float) -> None:
    world.put_with("one")
    now, results = 0.0, []
    while not results:
        for request in world.producer.transaction_requests(now, set()):
            world.producer.transactions.request_sent(request, now)
            results += world.producer.settle(world.producer.transactions.located([code], now))
        now += 0.05
    assert results == [Refused("one", code)]
    assert seconds <= now <= seconds + 0.5
    assert world.brokers.sent == []


def test_leader_that_moves_is_looked_up_again_before_the_next_attempt(world: World) -> None:
    world.put_with("one", DLQ, DLQ1)
    transactions = world.producer.transactions
    for request, result in ((AddPartitions((DLQ, DLQ1)), transactions.added),):
        assert world.producer.transaction_requests(0.0, {DLQ, DLQ1}) == [request]
        transactions.request_sent(request, 0.0)
        result(OK, 0.0)
    writes = transactions.requests(0.0, {DLQ})
    assert writes[0] == Locate(("dlq",))
    assert [write.place for write in writes[1:] if isinstance(write, Write)] == [DLQ]


def test_end_waits_for_the_writes_in_flight(world: World) -> None:
    """A write that arrives after the abort would leave its sequence number in doubt."""
    world.put_with("one", DLQ, DLQ1)
    both, transactions = {DLQ, DLQ1}, world.producer.transactions
    (add,) = world.producer.transaction_requests(0.0, both)
    transactions.request_sent(add, 0.0)
    transactions.added(OK, 0.0)
    for write in transactions.requests(0.0, both):
        transactions.request_sent(write, 0.0)
    transactions.written(DLQ, ErrorCode.MESSAGE_TOO_LARGE, 0.0)
    assert transactions.requests(0.0, both) == []
    transactions.written(DLQ1, OK, 0.0)
    assert transactions.requests(0.0, both) == [End(committed=False)]


TROUBLE = [
    LOST_RESPONSE,
    CUT,
    Fate(arrives=False, code=None, arrives_late=True),
    *(
        Fate(arrives=False, code=code)
        for code in (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        )
    ),
    *(Fate(code=code) for code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)),
]
IMPOSSIBLE = {
    "commit": {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER},
    "abort": {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER},
}
"""Codes that a request cannot get."""
SEEDS = int(os.environ.get("STATE_TRANSACTION_SEEDS", "100"))


class Storm:
    """A world in which requests meet trouble, and owners die."""

    def __init__(self, seed: int) -> None:
        self.chance, self.world = random.Random(seed), World()
        self.trouble = self.chance.choice((0.05, 0.3, 0.6))
        self.tokens: list[str] = []
        """Transactions that were accepted."""
        self.unsettled: set[str] = set()
        """Appends of owners that died or were fenced."""

    def fate(self, name: str) -> Fate:
        if self.chance.random() >= self.trouble:
            return CALM
        drawn = self.chance.choice([each for each in TROUBLE if each.code not in IMPOSSIBLE.get(name, ())])
        return CALM if name == "identify" and (drawn.code is not None or drawn.arrives_late) else drawn

    def step(self, token: str) -> None:
        chance, world = self.chance, self.world
        world.brokers.markers_wait = chance.random() < 0.3
        if chance.random() < 0.5:
            if world.put_with(token, *chance.choice(((DLQ,), (DLQ, DLQ1), (DLQ1,))), key=token) == OK:
                self.tokens.append(token)
        else:
            world.put(token)
        for _ in range(chance.randrange(6)):
            world.iterate(chance.choice((0.001, 0.02, 0.3, 3.0)), self.fate)
            if chance.random() < 0.2:
                world.brokers.arrive()
            if chance.random() < 0.3:
                world.brokers.write_markers()
        if world.lost is not None or chance.random() < 0.03:
            self.take_over()

    def take_over(self) -> None:
        self.unsettled |= {str(token) for token in self.world.producer.tokens()}
        self.world.own()

    def calm_down(self) -> None:
        world = self.world
        world.brokers.markers_wait = False
        world.brokers.write_markers()
        world.until(lambda: not world.producer.tokens() or world.lost is not None)
        world.brokers.arrive()
        self.take_over()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_transaction_is_visible_in_all_its_partitions_or_in_none(seed: int) -> None:
    """Each transaction is visible in all its partitions or in none, exactly if its promise says so."""
    storm = Storm(seed)
    for number in range(60):
        storm.step(f"{seed}-{number}")
    storm.calm_down()
    world = storm.world
    stored, letters = world.stored(), [world.letters(), world.letters(DLQ1)]
    for token in storm.tokens:
        in_state = stored.get(token.encode()) == token.encode()
        counts = [each.count(token.encode()) for each in letters]
        assert max(counts) <= 1, f"{token} is doubled"
        assert in_state == any(counts), f"{token} is only in one of them"
        if token not in storm.unsettled:
            assert in_state == (world.outcomes[token] == OK), token
