"""Individual commits of stock clients on real brokers: stored ranges, and responses to the members.

The oracle is the broker itself: the topic of ranges in its log, and OffsetFetch past the proxy.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from confluent_kafka.admin import AdminClient
from kafka_share_proxy.commits.state_records import TOPIC
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.offsets.ledger import OffsetLedger
from kafka_share_proxy.offsets.ranges import OffsetRanges
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.brokers import CLASSIC, COORDINATORS, OLD, Running
from tests.support.commit_members import MEMBERS, ConfluentMember, Member, PythonMember, Refused, settle
from tests.support.commit_topic import CommitTopic
from tests.support.consume_transform import Job
from tests.support.raw import LIMIT_S, Raw, until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

Fresh = Callable[[str], str]


@dataclass
class Side:
    """A broker, a proxy in front of it with the default settings, and the oracle."""

    kafka: Cluster
    front: Front
    oracle: CommitTopic
    raw: Raw
    """Through the proxy."""
    is_classic: bool = False
    """The coordinator is the one that 3.9 has by default."""

    def topic(self, name: str, records: int = 60, partitions: int = 1) -> str:
        """Create a topic with this many records in each partition, their values being their offsets."""
        created = self.raw.create_topic(name, partitions)
        if records:
            for partition in range(partitions):
                self.raw.produce(created, [b"%d" % number for number in range(records)], partition=partition)
        return name

    def shown(self, group: str, topic: str, partition: int = 0) -> tuple[int, str]:
        """Return what OffsetFetch through the proxy says."""
        response = self.raw.send_request(
            "OffsetFetch", 7, on=self.raw.on_coordinator(group), group_id=group,
            topics=[{"name": topic, "partition_indexes": [partition]}],
        )  # fmt: skip
        entry = response.topics[0].partitions[0]
        assert (response.error_code, entry.error_code) == (0, 0)
        return entry.committed_offset, entry.metadata.rstrip("\0")

    def state(self, group: str, topic: str, partition: int = 0) -> tuple[int, str, str]:
        """Return the broker's state: the committed offset, its metadata, and the live ranges in the topic."""
        return *self.oracle.primary(group, topic, partition), self.oracle.live(group, topic, partition)

    @property
    def in_metadata(self) -> bool:
        """True if the brokers' metadata holds the ranges."""
        return self.oracle.in_metadata

    def written(self, group: str, topic: str) -> list[str]:
        """Puts and tombstones of ranges, in the order of the log."""
        return [str(each) for each in self.oracle.dump(group, topic)]


@pytest.fixture(scope="module")
def fronts(running: Running) -> dict[str, tuple[Cluster, Front]]:
    """Broker and proxy of each coordinator, once it was used."""
    return {}


STATES = ("topic", "metadata")


LONG = [f"{name} metadata" for name in list(COORDINATORS)[1:]]
"""Sides that a whole run leaves out: the first coordinator has both states."""
SIDES = [
    pytest.param(side, marks=pytest.mark.long if side in LONG else ())
    for side in (f"{name} {state}" for name in COORDINATORS for state in STATES)
]


@pytest.fixture(scope="module", params=SIDES)
def side(request: pytest.FixtureRequest, running: Running, fronts: dict[str, tuple[Cluster, Front]]) -> Iterator[Side]:
    """One broker for both places of ranges: the proxy is started again with the other setting."""
    name, state = request.param.split()
    release, properties = COORDINATORS[name]
    if name in fronts:
        kafka, front = fronts[name]
        front.stop()
        front.settings["commits"] = {"state": state}
        front.start()
    else:
        kafka = running.cluster(release, properties=properties)
        front = running.front(kafka.bootstrap, {"commits": {"state": state}})
        fronts[name] = kafka, front
    until(lambda: front.send_request("/readyz/commits")[0], "ranges to be loaded")
    oracle = CommitTopic(kafka.bootstrap, in_metadata=state == "metadata")
    new_side = Side(kafka, front, oracle, Raw(front.bootstrap), is_classic=properties == CLASSIC)
    yield new_side
    new_side.oracle.close()
    new_side.raw.close()


@pytest.fixture
def members(side: Side) -> Iterator[Callable[..., Member]]:
    started_members: list[Member] = []

    def join(client: str, group: str, topic: str) -> Member:
        started_members.append(MEMBERS[client](side.front.bootstrap, group, topic))
        return started_members[-1]

    yield join
    for member in started_members:
        member.close()


@pytest.mark.parametrize("client", MEMBERS)
def test_t7_a004_1_to_4_the_illustrations_by_literal_commits(
    side: Side, members: Callable[..., Member], fresh: Fresh, client: str
) -> None:
    topic, group = side.topic(fresh("topic")), fresh("group")
    member = members(client, group, topic)

    member.commit(topic, 0, 43, "ic/1;45-47,50-50")
    assert side.state(group, topic) == (43, "", "45-47,50-50")
    member.commit(topic, 0, 43, "ic/1;48-49")
    assert side.state(group, topic) == (43, "", "45-50")
    assert side.in_metadata or side.written(group, topic)[-3:] == ["+45-50", "-45-47", "-50-50"]
    assert side.shown(group, topic) == (43, "ic/1;45-50")
    member.commit(topic, 0, 43, "ic/1;43-44")
    assert side.state(group, topic) == (51, "", "")
    assert side.in_metadata or side.written(group, topic)[-1] == "-45-50"

    second = fresh("group")
    member = members(client, second, topic)
    member.commit(topic, 0, 43, "ic/1;45-47")
    member.commit(topic, 0, 43, "ic/1;43-44")
    assert side.state(second, topic) == (48, "", "")
    assert side.in_metadata or side.written(second, topic) == ["+45-47", "-45-47"]

    third = fresh("group")
    member = members(client, third, topic)
    member.commit(topic, 0, 41, "ic/1;43-45,48-49")
    assert side.shown(third, topic) == (41, "ic/1;43-45,48-49")
    member.commit(topic, 0, 41, "ic/1;41-42,46-47,50-50")
    assert side.state(third, topic) == (51, "", "")
    assert side.in_metadata or sorted(side.written(third, topic)[2:]) == ["-43-45", "-48-49"]
    offset, metadata = member.committed(topic, 0)
    assert (offset, metadata or "") == (51, "")


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python"])
def test_members_get_the_committed_offset_and_the_ranges_back(
    side: Side, members: Callable[..., Member], fresh: Fresh, client: str
) -> None:
    topic, group = side.topic(fresh("topic")), fresh("group")
    member = members(client, group, topic)
    member.commit(topic, 0, 41, "ic/1;48-49,43-45;pr=45-60;u=my own; text")
    assert member.committed(topic, 0) == (41, "ic/1;43-45,48-49;pr=45-60;u=my own; text")
    assert side.oracle.primary(group, topic) == (41, "ic/1;;pr=45-60;u=my own; text")
    member.commit(topic, 0, 41, "ic/1;50-50;u=my own; text")
    assert member.committed(topic, 0) == (41, "ic/1;43-45,48-50;u=my own; text")
    assert side.oracle.primary(group, topic) == (41, "my own; text")
    member.commit(topic, 0, 41, "ic/1;41-42")
    assert [member.committed(topic, 0) for _ in range(5)] == [(46, "ic/1;48-50")] * 5


def test_a004_5_to_9_below_the_committed_offset_again_forward_and_back(
    side: Side, members: Callable[..., Member], fresh: Fresh
) -> None:
    topic, group = side.topic(fresh("topic")), fresh("group")
    member = members("confluent-kafka", group, topic)
    member.commit(topic, 0, 41, "ic/1;46-47")
    member.commit(topic, 0, 41, "ic/1;46-47")
    assert side.written(group, topic) == ["+46-47"]
    member.commit(topic, 0, 41, "ic/1;30-35")
    assert side.state(group, topic) == (41, "", "46-47")
    assert side.written(group, topic) == ["+46-47"]
    member.commit(topic, 0, 40, "ic/1;40-45")
    assert side.state(group, topic) == (48, "", "")
    member.commit(topic, 0, 48, "ic/1;50-52,54-54")
    member.commit(topic, 0, 51)
    assert side.state(group, topic) == (53, "", "54-54")
    member.commit(topic, 0, 41)
    assert side.state(group, topic) == (41, "", "")
    assert side.shown(group, topic) == (41, "")


def test_a004_10_and_11_after_a_restart_only_what_is_not_done_is_processed(
    side: Side, members: Callable[..., Member], fresh: Fresh
) -> None:
    topic, group = side.topic(fresh("topic"), records=51), fresh("group")
    first = members("confluent-kafka", group, topic)
    first.commit(topic, 0, 41, "ic/1;43-45,48-49")
    consumer = Consumer({"bootstrap.servers": side.front.bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        offset, metadata = first.committed(topic, 0)
        ledger = OffsetLedger.from_committed(offset, metadata)
        consumer.assign([ConfluentTopicPartition(topic, 0, offset)])
        processed = []
        while ledger.position is None or ledger.position < 51:
            record = consumer.poll(LIMIT_S)
            assert record is not None
            if ledger.delivered(record.offset()):
                processed.append(record.offset())
                ledger.done(record.offset())
        assert processed == [41, 42, 46, 47, 50]
        first.commit(topic, 0, ledger.offset or 0, ledger.text())
    finally:
        consumer.close()
    assert side.state(group, topic) == (51, "", "")


@pytest.mark.parametrize("text", ["ic/1;9-7", "ic/1;-3-5", "ic/1;5", "ic/2;1-2", "ic/1;1-2;x=3"])
def test_a004_15_text_that_cannot_be_read_is_42_and_changes_nothing(
    side: Side, members: Callable[..., Member], fresh: Fresh, text: str
) -> None:
    topic, group = side.topic(fresh("topic")), fresh("group")
    member = members("confluent-kafka", group, topic)
    member.commit(topic, 0, 5, "ic/1;7-8")
    with pytest.raises(Refused) as refused:
        member.commit(topic, 0, 6, text)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    assert side.state(group, topic) == (5, "", "7-8")


def test_t8_a004_16_stale_and_unknown_members_get_the_coordinators_error_and_nothing_is_stored(
    side: Side, members: Callable[..., Member], fresh: Fresh
) -> None:
    topic, group = side.topic(fresh("topic")), fresh("group")
    member = members("kafka-python", group, topic)
    assert isinstance(member, PythonMember)
    member.commit(topic, 0, 5, "ic/1;10-11")
    generation = member.consumer._coordinator._generation
    before = side.written(group, topic)
    for generation_id, member_id, code in (
        (generation.generation_id - 1, generation.member_id, ErrorCode.ILLEGAL_GENERATION),
        (generation.generation_id, "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        (-1, "", ErrorCode.UNKNOWN_MEMBER_ID),
        (generation.generation_id, generation.member_id, ErrorCode.NONE),
    ):
        assert side.written(group, topic) == before
        partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "ic/1;12-12"}
        response = side.raw.send_request(
            "OffsetCommit", 8, on=side.raw.on_coordinator(group), group_id=group, member_id=member_id,
            generation_id_or_member_epoch=generation_id, topics=[{"name": topic, "partitions": [partition]}],
        )  # fmt: skip
        assert response.topics[0].partitions[0].error_code == code
    assert side.state(group, topic) == (7, "", "10-12")


def test_t8_member_of_an_earlier_generation_stores_nothing(
    side: Side, members: Callable[..., Member], fresh: Fresh
) -> None:
    """The second member joins, the first one does not poll: its generation is over."""
    topic, group = side.topic(fresh("topic"), partitions=2), fresh("group")
    first = PythonMember(side.front.bootstrap, group, topic)
    try:
        first.commit(topic, 0, 5, "ic/1;10-11")
        old = first.consumer._coordinator._generation
        second = threading.Thread(target=lambda: members("kafka-python", group, topic))
        second.start()
        until(lambda: first.consumer.poll(timeout_ms=100) is None or not second.is_alive(), "both members")
        second.join(LIMIT_S)
        partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "ic/1;12-12"}
        response = side.raw.send_request(
            "OffsetCommit", 8, on=side.raw.on_coordinator(group), group_id=group, member_id=old.member_id,
            generation_id_or_member_epoch=old.generation_id, topics=[{"name": topic, "partitions": [partition]}],
        )  # fmt: skip
        assert response.topics[0].partitions[0].error_code == ErrorCode.ILLEGAL_GENERATION
        assert side.state(group, topic) == (5, "", "10-11")
    finally:
        first.close()


def test_a004_17_group_that_is_deleted_has_no_ranges(side: Side, fresh: Fresh) -> None:
    topic, group = side.topic(fresh("topic")), fresh("group")
    member = ConfluentMember(side.front.bootstrap, group, topic)
    member.commit(topic, 0, 5, "ic/1;10-11,20-20")
    member.close()
    assert side.oracle.is_marked(group)
    admin = AdminClient({"bootstrap.servers": side.front.bootstrap, "log_level": 2})
    for outcome in admin.delete_consumer_groups([group]).values():
        outcome.result(LIMIT_S)
    assert side.oracle.live(group, topic) == ""
    assert not side.oracle.is_marked(group)
    again = ConfluentMember(side.front.bootstrap, group, topic)
    assert again.committed(topic, 0)[0] < 0
    again.commit(topic, 0, 3, "ic/1;5-5")
    again.close()
    assert side.state(group, topic) == (3, "", "5-5")


def test_offsets_that_are_deleted_take_their_ranges_along(side: Side, fresh: Fresh) -> None:
    topic, group = side.topic(fresh("topic"), partitions=2), fresh("group")
    member = ConfluentMember(side.front.bootstrap, group, topic)
    member.commit(topic, 0, 5, "ic/1;10-11")
    member.commit(topic, 1, 5, "ic/1;10-11")
    member.close()
    response = side.raw.send_request(
        "OffsetDelete", 0, on=side.raw.on_coordinator(group), group_id=group,
        topics=[{"name": topic, "partitions": [{"partition_index": 0}]}],
    )  # fmt: skip
    assert (response.error_code, response.topics[0].partitions[0].error_code) == (0, 0)
    assert side.oracle.live(group, topic, 0) == ""
    assert side.oracle.live(group, topic, 1) == "10-11"


@pytest.mark.slow
def test_a004_18_two_members_commit_overlapping_ranges_a_thousand_times(side: Side, fresh: Fresh) -> None:
    topic, group = side.topic(fresh("topic"), records=2000, partitions=2), fresh("group")
    both = [ConfluentMember(side.front.bootstrap, group, topic, alone=False) for _ in range(2)]
    settle(*both)
    dice = random.Random(18)
    spans = [(start, start + dice.randrange(1, 6)) for start in (dice.randrange(1, 1500) for _ in range(1000))]
    both[0].commit(topic, 0, 0)
    troubles: list[BaseException] = []

    def commit(member: Member, mine: list[tuple[int, int]]) -> None:
        try:
            for start, end in mine:
                member.commit(topic, 0, 0, f"ic/1;{start}-{end - 1}")
        except BaseException as error:
            troubles.append(error)

    threads = [threading.Thread(target=commit, args=(both[n], spans[n::2])) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5 * LIMIT_S)
    for member in both:
        member.close()
    assert not troubles
    union = OffsetRanges(spans)
    assert side.oracle.live(group, topic) == str(union)
    assert side.shown(group, topic) == (0, f"ic/1;{union}")


def test_auto_commit_together_with_individual_commits_in_one_group(side: Side, fresh: Fresh) -> None:
    """One member commits by itself, the other one individually; neither disturbs the other's partition."""
    topic, group = side.topic(fresh("topic"), partitions=2), fresh("group")
    often = {"enable.auto.commit": True, "auto.commit.interval.ms": 200}
    automatic = ConfluentMember(side.front.bootstrap, group, topic, alone=False, **often)
    individual = ConfluentMember(side.front.bootstrap, group, topic, alone=False)
    try:
        settle(automatic, individual)
        (mine,), (other,) = individual.consumer.assignment(), automatic.consumer.assignment()
        assert mine.partition != other.partition
        individual.commit(topic, mine.partition, 10, "ic/1;20-29,40-49")
        automatic.consumer.seek(ConfluentTopicPartition(topic, other.partition, 0))

        def is_committed() -> bool:
            automatic.consumer.poll(0.1)
            return side.oracle.primary(group, topic, other.partition)[0] == 60

        until(is_committed, "the auto-commit of the other partition")
        individual.commit(topic, mine.partition, 10, "ic/1;10-19")
        assert side.state(group, topic, mine.partition) == (30, "", "40-49")
        assert side.oracle.live(group, topic, other.partition) == ""
    finally:
        individual.close()
        automatic.close()


def _raw_commit(side: Side, group: str, topic: str, offset: int, text: str | None = None, version: int = 8) -> int:
    """Commit as a tool for a group without members."""
    known = side.raw.topic(topic)
    assert known is not None
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": text}
    response = side.raw.send_request(
        "OffsetCommit", version, on=side.raw.on_coordinator(group), group_id=group, member_id="",
        generation_id_or_member_epoch=-1,
        topics=[{"name": topic, "topic_id": known.topic_id, "partitions": [partition]}],
    )  # fmt: skip
    return int(response.topics[0].partitions[0].error_code)


def test_10000_ranges_are_stored_shown_as_far_as_a_string_goes_and_dropped_by_a_rewind(
    side: Side, fresh: Fresh
) -> None:
    topic, group = side.topic(fresh("topic"), records=0), fresh("group")
    for begin in range(0, 10_000, 2_000):
        text = ",".join(f"{3 * n + 10}-{3 * n + 10}" for n in range(begin, begin + 2_000))
        assert _raw_commit(side, group, topic, 5, f"ic/1;{text}") == 0
    assert side.oracle.live(group, topic).count(",") == 9_999
    assert _raw_commit(side, group, topic, 5, "ic/1;7-7") == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert side.oracle.live(group, topic).count(",") == 9_999
    offset, shown = side.shown(group, topic)
    assert (offset, len(shown) < 32_767, shown.startswith("ic/1;10-10,13-13,")) == (5, True, True)
    assert _raw_commit(side, group, topic, 4) == 0
    assert side.state(group, topic) == (4, "", "")


def test_topics_by_id_all_topics_and_several_groups(side: Side, fresh: Fresh) -> None:
    topic, group, other = side.topic(fresh("topic")), fresh("group"), fresh("group")
    known = side.raw.topic(topic)
    assert known is not None
    by_id = side.kafka.release != OLD
    assert _raw_commit(side, group, topic, 43, "ic/1;45-47", version=10 if by_id else 9) == 0
    assert _raw_commit(side, other, topic, 7, "text of its own") == 0
    for version, topics in (
        (9, [{"name": topic, "partition_indexes": [0]}]),
        (9, None),
        *([(10, [{"topic_id": known.topic_id, "partition_indexes": [0]}]), (10, None)] if by_id else []),
    ):
        response = side.raw.send_request(
            "OffsetFetch", version, on=side.raw.on_coordinator(group),
            groups=[{"group_id": name, "topics": topics} for name in (other, group)],
        )  # fmt: skip
        committed_by_group = {
            entry.group_id: [(each.committed_offset, each.metadata) for t in entry.topics for each in t.partitions]
            for entry in response.groups
        }
        assert committed_by_group == {other: [(7, "text of its own")], group: [(43, "ic/1;45-47")]}


def test_members_of_the_consumer_protocol_commit_individually(side: Side, fresh: Fresh) -> None:
    """KIP-848: member epochs are the coordinator's to judge."""
    if side.kafka.release == OLD:
        pytest.skip("librdkafka speaks the protocol of Kafka 4 only (ConsumerGroupHeartbeat v1)")
    topic, group = side.topic(fresh("topic")), fresh("group")
    member = ConfluentMember(side.front.bootstrap, group, topic, **{"group.protocol": "consumer"})
    try:
        member.commit(topic, 0, 43, "ic/1;45-47,50-50")
        member.commit(topic, 0, 43, "ic/1;43-44")
        assert side.state(group, topic) == (48, "", "50-50")
        assert member.committed(topic, 0) == (48, "ic/1;50-50")
        member_id = member.consumer.memberid()
        partition = {"partition_index": 0, "committed_offset": 51, "committed_metadata": "ic/1;52-52"}
        response = side.raw.send_request(
            "OffsetCommit", 9, on=side.raw.on_coordinator(group), group_id=group, member_id=member_id,
            generation_id_or_member_epoch=99, topics=[{"name": topic, "partitions": [partition]}],
        )  # fmt: skip
        assert response.topics[0].partitions[0].error_code == ErrorCode.STALE_MEMBER_EPOCH
        assert side.state(group, topic) == (48, "", "50-50")
    finally:
        member.close()


def test_epochs_of_the_consumer_protocol_are_judged_by_both_releases(side: Side, fresh: Fresh) -> None:
    """KIP-848 as 3.9 has it (v0, early access), spoken by hand: Java's consumer alone would do it there."""
    if side.is_classic:
        pytest.skip("the classic coordinator has no groups of KIP-848")
    topic, group, raw = side.topic(fresh("topic")), fresh("group"), side.raw

    def heartbeat(member_id: str, epoch: int) -> tuple[int, str, int]:
        described = raw.send_request(
            "ConsumerGroupHeartbeat", 0, on=raw.on_coordinator(group), group_id=group, member_id=member_id,
            member_epoch=epoch, rebalance_timeout_ms=10_000, subscribed_topic_names=[topic], topic_partitions=[],
        )  # fmt: skip
        return described.error_code, described.member_id, described.member_epoch

    code, member_id, epoch = until(lambda: (response := heartbeat("", 0))[0] == 0 and response, "the member to join")
    assert (code, epoch > 0) == (0, True)

    def commit(offset: int, text: str, at: int) -> int:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": text}
        response = raw.send_request(
            "OffsetCommit", 9, on=raw.on_coordinator(group), group_id=group, member_id=member_id,
            generation_id_or_member_epoch=at, topics=[{"name": topic, "partitions": [partition]}],
        )  # fmt: skip
        return int(response.topics[0].partitions[0].error_code)

    assert commit(43, "ic/1;45-47,50-50", epoch) == 0
    assert commit(43, "ic/1;43-44", epoch) == 0
    assert commit(51, "ic/1;52-52", epoch + 7) == ErrorCode.STALE_MEMBER_EPOCH
    assert side.state(group, topic) == (48, "", "50-50")
    assert side.shown(group, topic) == (48, "ic/1;50-50")


def _transactional(side: Side, fresh: Fresh) -> Producer:
    producer = Producer({"bootstrap.servers": side.front.bootstrap, "transactional.id": fresh("tid"), "log_level": 2})
    producer.init_transactions(LIMIT_S)
    return producer


def test_a004_25_and_26_ranges_of_a_transaction_count_when_it_is_committed(side: Side, fresh: Fresh) -> None:
    topic, group = side.topic(fresh("topic")), fresh("group")
    member = ConfluentMember(side.front.bootstrap, group, topic)
    producer = _transactional(side, fresh)
    try:
        member.commit(topic, 0, 41, "ic/1;48-49")
        _send(producer, member, topic, 41, "ic/1;43-45")
        with pytest.raises(Refused) as refused:
            _commit_raw(side, group, topic, 41, "ic/1;55-55", member)
        assert refused.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        stable = side.raw.send_request(
            "OffsetFetch", 7, on=side.raw.on_coordinator(group), group_id=group, require_stable=True,
            topics=[{"name": topic, "partition_indexes": [0]}],
        )  # fmt: skip
        assert stable.topics[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        producer.abort_transaction(LIMIT_S)
        until(lambda: member.committed(topic, 0) == (41, "ic/1;48-49"), "the abort")
        assert side.oracle.live(group, topic) == "48-49"

        _send(producer, member, topic, 41, "ic/1;43-45")
        producer.commit_transaction(LIMIT_S)
        until(lambda: member.committed(topic, 0) == (41, "ic/1;43-45,48-49"), "the commit")
        member.commit(topic, 0, 41, "ic/1;41-42")
        assert side.state(group, topic) == (46, "", "48-49")

        _send(producer, member, topic, 46, "ic/1;46-47,50-50;u=mine")
        producer.commit_transaction(LIMIT_S)
        until(  # queried repeatedly: while the transaction may be open nothing of it counts
            lambda: member.committed(topic, 0) == (51, "mine") and side.state(group, topic) == (51, "mine", ""),
            "the second commit, and the ranges below the mark to go",
        )
    finally:
        member.close()


def _send(producer: Producer, member: ConfluentMember, topic: str, offset: int, text: str) -> None:
    producer.begin_transaction()
    place = ConfluentTopicPartition(topic, 0, offset, text)
    producer.send_offsets_to_transaction([place], member.consumer.consumer_group_metadata(), LIMIT_S)


def _commit_raw(side: Side, group: str, topic: str, offset: int, text: str, member: ConfluentMember) -> None:
    """One commit, without the repetitions of a client; in the generation of the only member."""
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": text}
    for generation_id in range(1, 21):
        response = side.raw.send_request(
            "OffsetCommit", 8, on=side.raw.on_coordinator(group), group_id=group, member_id=member.consumer.memberid(),
            generation_id_or_member_epoch=generation_id, topics=[{"name": topic, "partitions": [partition]}],
        )  # fmt: skip
        code = response.topics[0].partitions[0].error_code
        if code != ErrorCode.ILLEGAL_GENERATION:
            if code:
                raise Refused(code)
            return
    raise AssertionError("in no generation")


def test_t14_each_input_is_once_in_the_output_through_aborts(side: Side, fresh: Fresh) -> None:
    """Consume, transform, produce, finished out of order; every third transaction is aborted."""
    topic, output, group = side.topic(fresh("topic"), records=200), side.topic(fresh("out"), records=0), fresh("group")
    job = Job(side.front.bootstrap, topic, output, group, records=200, seed=14)
    assert any(job.attempt(aborts=attempt % 3 == 2) for attempt in range(60))
    assert job.results() == list(range(200))


def test_a004_13_topic_of_ranges_that_is_deleted_costs_duplicates_only(
    side: Side, members: Callable[..., Member], fresh: Fresh
) -> None:
    topic, group = side.topic(fresh("topic")), fresh("group")
    member = members("confluent-kafka", group, topic)
    member.commit(topic, 0, 41, "ic/1;43-45")
    with Raw(side.kafka.bootstrap) as raw:
        stored = raw.topic(TOPIC)
        assert stored is not None
        raw.send_request("DeleteTopics", 5, topic_names=[TOPIC], timeout_ms=10_000)

    def is_made_anew() -> bool:
        with Raw(side.kafka.bootstrap) as raw:
            existing = raw.topic(TOPIC)
            return existing is not None and existing.topic_id != stored.topic_id

    until(is_made_anew, "the topic of ranges made anew")
    expected = (41, "ic/1;43-45" if side.in_metadata else "")
    until(lambda: side.shown(group, topic) == expected, "the group at its mark")

    def is_committed() -> bool:
        try:
            member.commit(topic, 0, 41, "ic/1;48-49")
        except Refused:
            return False
        return True

    until(is_committed, "commits after the topic was deleted")
    assert side.state(group, topic) == (41, "", "43-45,48-49" if side.in_metadata else "48-49")
    assert side.oracle.is_marked(group)


@pytest.mark.slow
def test_a004_14_compaction_leaves_one_record_for_each_live_range(side: Side, fresh: Fresh) -> None:
    """After 10,000 commits, and when the log cleaner has been there."""
    if side.in_metadata:
        pytest.skip("few ranges reach the topic")
    topic, group = side.topic(fresh("topic"), records=0), fresh("group")
    with Raw(side.front.bootstrap) as raw:
        raw.try_configure(2, TOPIC, {"segment.ms": "1000", "min.cleanable.dirty.ratio": "0.001"})
        raw.try_configure(2, TOPIC, {"delete.retention.ms": "0", "max.compaction.lag.ms": "1000"})
    assert _raw_commit(side, group, topic, 0) == 0
    numbers = iter(random.Random(14).sample(range(1, 20_001), 10_000))
    lock, troubles = threading.Lock(), list[BaseException]()

    def commit() -> None:
        with Raw(side.front.bootstrap) as raw:
            on = raw.on_coordinator(group)
            for _ in range(10_000):
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                partition = {
                    "partition_index": 0,
                    "committed_offset": 0,
                    "committed_metadata": f"ic/1;{number}-{number}",
                }
                response = raw.send_request(
                    "OffsetCommit", 8, on=on, group_id=group, member_id="", generation_id_or_member_epoch=-1,
                    topics=[{"name": topic, "partitions": [partition]}],
                )  # fmt: skip
                if code := response.topics[0].partitions[0].error_code:
                    troubles.append(Refused(code))

    threads = [threading.Thread(target=commit) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5 * LIMIT_S)
    assert not troubles
    live = side.oracle.live(group, topic)
    assert live.count(",") > 4000

    later = iter(range(30_000, 40_000, 2))

    def is_clean() -> bool:
        number = next(later)  # a later record lets the segment roll
        assert _raw_commit(side, group, topic, 0, f"ic/1;{number}-{number}") == 0
        puts = [each.key for each in side.oracle.dump(group, topic) if each.value is not None]
        return len(puts) == len(set(puts)) == side.oracle.live(group, topic).count(",") + 1

    until(is_clean, "the log cleaner", limit_s=3 * LIMIT_S, pause_s=2.0)


def test_commit_to_a_recreated_topic_inherits_nothing_of_the_deleted_one(side: Side, fresh: Fresh) -> None:
    """Stored before: 500 with 507-509. Committed 0, 1, 3 and 4 s after the recreation: 2 with 4-4."""
    cases = {after_s: (fresh("topic"), fresh("group")) for after_s in (0, 1, 3, 4)}

    def commit(topic: str, group: str, offset: int, text: str) -> int:
        response = side.raw.send_request(
            "OffsetCommit", 8, on=side.raw.on_coordinator(group), group_id=group, generation_id_or_member_epoch=-1,
            member_id="", topics=[{"name": topic, "partitions": [
                {"partition_index": 0, "committed_offset": offset, "committed_metadata": text}]}],
        )  # fmt: skip
        return int(response.topics[0].partitions[0].error_code)

    for topic, group in cases.values():
        side.topic(topic, records=0)
        assert commit(topic, group, 500, "ic/1;507-509") == 0
        assert side.shown(group, topic) == (500, "ic/1;507-509")
    with Raw(side.kafka.bootstrap) as raw:
        for topic, _ in cases.values():
            deleted = raw.topic(topic)
            assert deleted is not None
            raw.delete_topic(deleted)
            raw.create_topic(topic)
    recreated = time.monotonic()
    for after_s, (topic, group) in cases.items():
        time.sleep(max(0.0, recreated + after_s - time.monotonic()))
        assert commit(topic, group, 2, "ic/1;4-4") == 0
        assert side.state(group, topic) == (2, "", "4-4"), after_s
        assert side.shown(group, topic) == (2, "ic/1;4-4"), after_s
