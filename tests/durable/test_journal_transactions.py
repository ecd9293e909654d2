"""Appends together with records of other topics, over channels: which broker gets which request, and what follows."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.brokers.replaced import SILENT_S
from kafka_share_proxy.durable.interfaces import OutsideRecords, TransactionalJournal
from kafka_share_proxy.durable.journal import CHECK_MIN_S
from kafka_share_proxy.durable.memory_journal import MemoryJournal
from kafka_share_proxy.durable.state_transactions import OPEN_MAX_S, OUTSIDE_BYTES_MAX, UNKNOWN_TOPIC_S
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE, StateKey
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, LocalProtocolError
from kafka_share_proxy.wire.records.records import Record, decode_records, read_header

from tests.durable.test_journal import COORDINATOR, GROUP, LEADER, OTHER, PARTITION, World, code_of, key

OUTSIDE, MOVED = 3, 4
"""Nodes that lead the outside partition, one after the other."""
NAME = SHARE_STATE.transactional_id(PARTITION)


class Brokers(World):
    """A journal that owns PARTITION, and responses to its transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.own(PARTITION)

    def put_with(self, *values: bytes, topic: str = "dlq") -> Any:
        outside = [OutsideRecords(topic, 0, [Record(None, value) for value in values or (b"letter",)])]
        promise = self.journal.append_with([(StateKey("group", GROUP), b"\0\0value")], outside)
        self.loop.iterate()
        return promise

    def take(self, node_id: int, purpose: str, api: ApiKey) -> tuple[Any, Any]:
        """The request in flight there, and the function that responds."""
        requested = self.links.channels[node_id, purpose].requested
        (in_flight,) = [each for each in requested if each[0] == api]
        requested.remove(in_flight)

        def respond(response: Any) -> None:
            in_flight[2](response)
            self.loop.iterate(0.01)
            self.loop.iterate()

        return in_flight[1], respond

    def locate(self, node_id: int = OUTSIDE, code: ErrorCode = ErrorCode.NONE) -> None:
        message = registry.message("MetadataResponse")
        request, respond = self.take(COORDINATOR, "Transaction", ApiKey.METADATA)
        assert [topic.name for topic in request.topics] == ["dlq"]
        assert not request.allow_auto_topic_creation
        partitions = [] if code else [message.MetadataResponsePartition(partition_index=0, leader_id=node_id)]
        topic = message.MetadataResponseTopic(name="dlq", error_code=code, partitions=partitions)
        respond(message(brokers=[], topics=[topic]))

    def add(self, code: ErrorCode = ErrorCode.NONE) -> Any:
        message = registry.message("AddPartitionsToTxnResponse")
        request, respond = self.take(COORDINATOR, "Transaction", ApiKey.ADD_PARTITIONS_TO_TXN)
        entry = message.AddPartitionsToTxnPartitionResult
        state_code = ErrorCode.OPERATION_NOT_ATTEMPTED if code else code
        results = [
            message.AddPartitionsToTxnTopicResult(
                name=name, results_by_partition=[entry(partition_index=number, partition_error_code=result)]
            )
            for name, number, result in ((SHARE_STATE.topic, PARTITION, state_code), ("dlq", 0, code))
        ]
        respond(message(results_by_topic_v3_and_below=results))
        return request

    def write(self, node_id: int = OUTSIDE, code: ErrorCode = ErrorCode.NONE, offset: int = 0) -> Any:
        """Respond to the transactional Produce there."""
        message = registry.message("ProduceResponse")
        request, respond = self.take(node_id, "TransactionalAppend", ApiKey.PRODUCE)
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        entry = message.PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset)
        respond(message(responses=[message.TopicProduceResponse(name=topic.name, partition_responses=[entry])]))
        return request

    def end(self, code: ErrorCode = ErrorCode.NONE) -> Any:
        request, respond = self.take(COORDINATOR, "Transaction", ApiKey.END_TXN)
        respond(registry.message("EndTxnResponse")(error_code=code))
        return request


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def test_attempt_of_a_transaction_is_repeated_in_time_although_an_append_was_sent_meanwhile(brokers: Brokers) -> None:
    """Each has its own time, and one alarm serves both."""
    brokers.put_with()
    transactions = brokers.links.channels[COORDINATOR, "Transaction"].requested
    (_, _, respond) = transactions.pop()
    brokers.put()
    message = registry.message("MetadataResponse")
    topic = message.MetadataResponseTopic(name="dlq", error_code=ErrorCode.LEADER_NOT_AVAILABLE, partitions=[])
    respond(message(brokers=[], topics=[topic]))
    brokers.loop.iterate()
    assert len(brokers.channel("Append").requested) == 1
    assert not transactions
    brokers.loop.iterate(CHECK_MIN_S)
    assert [api for api, _, _ in transactions] == [ApiKey.METADATA]


def test_transaction_goes_to_the_coordinator_and_to_the_leaders(brokers: Brokers) -> None:
    promise = brokers.put_with(b"one", b"two")
    brokers.locate()
    added = brokers.add()
    assert (added.v3_and_below_transactional_id, added.v3_and_below_producer_id) == (NAME, 7)
    assert {(topic.name, *topic.partitions) for topic in added.v3_and_below_topics} == {
        (SHARE_STATE.topic, PARTITION),
        ("dlq", 0),
    }
    written = brokers.write()
    assert (written.transactional_id, written.acks) == (NAME, -1)
    batch = bytes(written.topic_data[0].partition_data[0].records)
    assert [record.value for record in decode_records(batch)] == [b"one", b"two"]
    header = read_header(batch)
    assert (header.is_transactional, header.producer_id, header.producer_epoch, header.base_sequence) == (True, 7, 1, 0)
    assert not promise.done
    stored = brokers.write(LEADER, offset=1000)
    batch = bytes(stored.topic_data[0].partition_data[0].records)
    assert (stored.topic_data[0].name, stored.transactional_id) == (SHARE_STATE.topic, NAME)
    assert [record.key for record in decode_records(batch)] == [key()]
    assert (read_header(batch).is_transactional, read_header(batch).base_sequence) == (True, 1)
    assert not promise.done
    ended = brokers.end()
    assert (ended.transactional_id, ended.committed, ended.producer_epoch) == (NAME, True, 1)
    assert promise.done
    promise.result()


def test_leaders_of_outside_partitions_are_kept(brokers: Brokers) -> None:
    for offset in (1000, 2000):
        promise = brokers.put_with()
        if offset == 1000:
            brokers.locate()
        brokers.add()
        header = read_header(bytes(brokers.write().topic_data[0].partition_data[0].records))
        assert header.base_sequence == offset // 1000 - 1
        brokers.write(LEADER, offset=offset)
        brokers.end()
        assert promise.done


def test_plain_append_of_the_partition_is_in_its_own_request(brokers: Brokers) -> None:
    """A Produce has one transactional id."""
    brokers.put_with()
    brokers.locate()
    plain = brokers.put()
    brokers.loop.iterate()
    assert brokers.produced() == {PARTITION: [key()]}
    assert plain.done
    brokers.add()
    brokers.write()
    held = brokers.put()
    brokers.loop.iterate()
    assert brokers.channel("Append").requested == []
    brokers.write(LEADER, offset=1000)
    brokers.end()
    brokers.loop.iterate()
    brokers.produced(offset=2000)
    assert held.done


def test_plain_append_before_the_marker_is_repeated_without_a_log_event(brokers: Brokers) -> None:
    brokers.put_with()
    brokers.locate()
    brokers.add()
    brokers.write()
    brokers.write(LEADER, offset=1000)
    brokers.end()
    plain = brokers.put()
    brokers.loop.iterate()
    brokers.produced(code=ErrorCode.INVALID_TXN_STATE)
    brokers.loop.iterate(0.02)
    brokers.loop.iterate(0.02)
    brokers.produced(offset=2000)
    assert plain.done
    assert brokers.notes == []


def test_leader_that_moved_is_looked_up_again(brokers: Brokers) -> None:
    promise = brokers.put_with()
    brokers.locate()
    brokers.add()
    brokers.write(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    brokers.locate(MOVED)
    brokers.write(MOVED)
    brokers.write(LEADER, offset=1000)
    brokers.end()
    assert promise.done
    promise.result()


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_topic_that_cannot_be_used_refuses_without_a_transaction(brokers: Brokers, code: ErrorCode) -> None:
    promise = brokers.put_with()
    began = brokers.loop.time
    while not promise.done:
        brokers.locate(code=code)
        brokers.loop.iterate(0.3)
        assert brokers.loop.time < began + UNKNOWN_TOPIC_S + 1
    assert code_of(promise) == code
    assert brokers.links.channels[COORDINATOR, "Transaction"].requested == []


def test_partition_beyond_those_of_the_topic_is_unknown(brokers: Brokers) -> None:
    outside = [OutsideRecords("dlq", 9, [Record(None, b"letter")])]
    promise = brokers.journal.append_with([(StateKey("group", GROUP), b"\0\0value")], outside)
    brokers.loop.iterate()
    while not promise.done:
        brokers.locate()
        brokers.loop.iterate(0.3)
    assert code_of(promise) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_refused_partition_is_reported_and_not_those_that_were_not_attempted(brokers: Brokers) -> None:
    promise = brokers.put_with()
    brokers.locate()
    brokers.add(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert code_of(promise) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_refused_write_aborts(brokers: Brokers) -> None:
    promise = brokers.put_with()
    brokers.locate()
    brokers.add()
    brokers.write(code=ErrorCode.MESSAGE_TOO_LARGE)
    assert not promise.done
    assert brokers.end().committed is False
    assert code_of(promise) == ErrorCode.MESSAGE_TOO_LARGE
    assert brokers.notes == ["state-append-failed"]


def test_fenced_transaction_ends_ownership(brokers: Brokers) -> None:
    promise = brokers.put_with()
    brokers.locate()
    brokers.add(ErrorCode.PRODUCER_FENCED)
    assert brokers.lost == [(PARTITION, ErrorCode.PRODUCER_FENCED)]
    brokers.journal.stop([PARTITION], ErrorCode.NOT_COORDINATOR, "another proxy")
    assert code_of(promise) == ErrorCode.NOT_COORDINATOR


def test_response_after_the_end_of_ownership_has_no_effect(brokers: Brokers) -> None:
    promise = brokers.put_with()
    brokers.locate()
    brokers.journal.stop([PARTITION], ErrorCode.NOT_COORDINATOR, "another proxy")
    brokers.add()
    assert code_of(promise) == ErrorCode.NOT_COORDINATOR
    assert (OUTSIDE, "TransactionalAppend") not in brokers.links.channels


def test_unknown_coordinator_is_looked_up(brokers: Brokers) -> None:
    brokers.journal.coordinators = {}
    views = brokers.views
    brokers.put_with()
    assert brokers.views > views
    brokers.journal.coordinators = {PARTITION: COORDINATOR}
    brokers.journal.check_soon()
    brokers.loop.iterate()
    brokers.locate()
    brokers.add(ErrorCode.NOT_COORDINATOR)
    assert PARTITION not in brokers.journal.coordinators


def test_silent_coordinator_that_was_replaced_is_given_up(brokers: Brokers) -> None:
    brokers.put_with()
    brokers.locate()
    brokers.links.late.add(COORDINATOR)
    for _ in range(3):
        brokers.loop.iterate(SILENT_S)
    assert PARTITION not in brokers.journal.coordinators
    brokers.journal.coordinators = {PARTITION: MOVED}
    for _ in range(3):
        brokers.loop.iterate(SILENT_S)
    assert [each[0] for each in brokers.links.channels[MOVED, "Transaction"].requested] == [
        ApiKey.ADD_PARTITIONS_TO_TXN
    ]


def test_silent_leader_of_the_state_that_was_replaced_is_given_up(brokers: Brokers) -> None:
    brokers.put_with()
    brokers.locate()
    brokers.add()
    brokers.write()
    brokers.links.late.add(LEADER)
    brokers.journal.leaders = {PARTITION: MOVED}
    for _ in range(3):
        brokers.loop.iterate(SILENT_S)
    brokers.write(MOVED, offset=1000)
    assert brokers.end().committed


def test_transaction_without_a_coordinator_is_aborted_in_time(brokers: Brokers) -> None:
    brokers.journal.coordinators = {}
    promise = brokers.put_with()
    for _ in range(round(OPEN_MAX_S) + 1):
        brokers.loop.iterate(1.0)
    assert code_of(promise) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_state_that_is_not_loaded_refuses(brokers: Brokers) -> None:
    outside = [OutsideRecords("dlq", 0, [Record(None, b"letter")])]
    promise = brokers.journal.append_with([(StateKey("group", OTHER), b"")], outside)
    assert code_of(promise) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_records_of_several_state_partitions_are_an_error(brokers: Brokers) -> None:
    outside = [OutsideRecords("dlq", 0, [Record(None, b"letter")])]
    records = [(StateKey("group", GROUP), b""), (StateKey("group", OTHER), b"")]
    with pytest.raises(LocalProtocolError, match="several partitions"):
        brokers.journal.append_with(records, outside)


def test_transaction_that_is_too_large_is_refused(brokers: Brokers) -> None:
    assert code_of(brokers.put_with(bytes(OUTSIDE_BYTES_MAX))) == ErrorCode.MESSAGE_TOO_LARGE


def test_journal_without_transactions_dials_no_channel_for_them(brokers: Brokers) -> None:
    brokers.put()
    brokers.loop.iterate()
    assert {purpose for _, purpose in brokers.links.channels} == {"Identify", "Append"}


def test_only_a_journal_over_a_topic_has_transactions(brokers: Brokers) -> None:
    assert isinstance(brokers.journal, TransactionalJournal)
    assert not isinstance(MemoryJournal(), TransactionalJournal)
