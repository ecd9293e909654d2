"""Requests of a journal's transactions. `durable.state_transactions` decides what is sent and what a response means.

Coordinators have one connection for transactions of a state, leaders another, so that plain appends do not wait for
either. The leaders of outside partitions are looked up when a transaction needs them, and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from kafka_share_proxy.brokers import producer_messages
from kafka_share_proxy.brokers.channel import Channel
from kafka_share_proxy.brokers.channels import BrokerChannels
from kafka_share_proxy.brokers.queries import about_topics
from kafka_share_proxy.durable.described_state import DescribedState
from kafka_share_proxy.durable.producer_requests import Append, AppendInTransaction, Identify, Outcome, RequestType
from kafka_share_proxy.durable.state_producer import StateProducer
from kafka_share_proxy.durable.state_transactions import (
    AddPartitions,
    Locate,
    TransactionOutcome,
    TransactionRequest,
    Write,
)
from kafka_share_proxy.durable.under_way import MOVED, UnderWay, forget
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import NO_ERROR, ErrorCode, LocalProtocolError
from kafka_share_proxy.wire.values import UNKNOWN_NODE, TopicPartition

METADATA_VERSION_MAX = 9
LEADERS_MAX = 10_000
"""Maximum number of outside partitions whose leader is kept."""


class TransactionHost(Protocol):
    """Part of the journal that its transactions need."""

    state: DescribedState[Any]
    leaders: dict[int, int]
    coordinators: dict[int, int]

    def now(self) -> float: ...

    def need_view(self) -> None:
        """Look up leaders and coordinators of the state's topic."""

    def guarded(self, responded: Callable[[Any], None]) -> Callable[[Any], None]:
        """Run it on behalf of the journal."""

    def is_current(self, partition: int, producer: StateProducer) -> bool: ...

    def settle(self, partition: int, outcomes: Iterable[Outcome]) -> None:
        """Report the outcomes, and check the partition soon."""


class JournalTransactions:
    """Transactions of all partitions of a journal."""

    def __init__(self, host: TransactionHost, channels: BrokerChannels, notes: Notes) -> None:
        topic = host.state.topic
        coordinator, leader = f"Transaction {topic}", f"TransactionalAppend {topic}"
        self._purposes: dict[RequestType, str] = {Identify: coordinator, Append: leader}
        self._host, self._channels, self._notes = host, channels, notes
        self._outside: dict[TopicPartition, int] = {}
        """Node id of the leader, by outside partition."""
        self._under_way = UnderWay(self._purposes)
        """Requests to coordinators, and appends to the state partitions."""

    @property
    def is_busy(self) -> bool:
        return bool(self._under_way.appends or self._under_way.identifies)

    def check(self) -> bool:
        """Give up requests to replaced brokers. Return True if any broker is late."""
        return self._under_way.check(self._channels, self._host.leaders, self._host.coordinators)

    def stopped(self, partitions: Iterable[int]) -> None:
        self._under_way.stopped(partitions)

    def send(self, partition: int, producer: StateProducer) -> bool:
        """Send what is due. Return True if a leader, coordinator or channel is missing."""
        now, is_missing = self._host.now(), False
        for request in producer.transaction_requests(now, self._outside):
            if isinstance(request, Write):
                node_id, purpose = self._outside[request.place], self._purposes[Append]
            else:
                node_id, purpose = self._host.coordinators.get(partition, UNKNOWN_NODE), self._purposes[Identify]
            channel = self._channel(node_id, purpose)
            if channel is None:
                is_missing = True
                if isinstance(request, Write) and self._channels.is_late(node_id, purpose):
                    del self._outside[request.place]
                continue
            producer.transactions.request_sent(request, now)
            self._send(channel, node_id, partition, producer, request)
        return is_missing

    def _channel(self, node_id: int, purpose: str) -> Channel | None:
        if node_id == UNKNOWN_NODE:
            self._host.need_view()
            return None
        channel = self._channels.get(node_id, purpose)
        if channel is None and self._channels.is_late(node_id, purpose):
            self._host.need_view()
        return channel

    def _send(
        self, channel: Channel, node_id: int, partition: int, producer: StateProducer, request: TransactionRequest
    ) -> None:
        def call(key: ApiKey, version: int, message: Any, responded: Callable[..., None], *arguments: Any) -> None:
            done = partial(responded, node_id, partition, producer, *arguments)
            channel.send_request(key, channel.highest(key, version), message, self._host.guarded(done))

        name = self._host.state.transactional_id(partition)
        writer = (name, producer.producer_id, producer.producer_epoch)
        if isinstance(request, Write):
            place = request.place
            message: Any = producer_messages.produce(place.topic, {place.partition: request.batch}, name)
            call(ApiKey.PRODUCE, producer_messages.PRODUCE_VERSION_MAX, message, self._written, place)
        elif isinstance(request, Locate):
            message = about_topics(request.topics)
            call(ApiKey.METADATA, METADATA_VERSION_MAX, message, self._located, request.topics)
        elif isinstance(request, AddPartitions):
            self._under_way.identifies[partition] = node_id
            places = (TopicPartition(self._host.state.topic, partition), *request.places)
            message = producer_messages.add_partitions(*writer, places)
            version = producer_messages.ADD_PARTITIONS_VERSION_MAX
            call(ApiKey.ADD_PARTITIONS_TO_TXN, version, message, self._added)
        else:
            self._under_way.identifies[partition] = node_id
            message = producer_messages.end_txn(*writer, committed=request.committed)
            call(ApiKey.END_TXN, producer_messages.END_TXN_VERSION_MAX, message, self._ended)

    def append(self, partition: int, producer: StateProducer) -> bool:
        """Send the append of a transaction to the state partition. Return False if its leader or channel is missing."""
        node_id = self._host.leaders.get(partition, UNKNOWN_NODE)
        channel = self._channel(node_id, self._purposes[Append])
        if channel is None:
            return False
        request = producer.next_request(self._host.now())
        if not isinstance(request, AppendInTransaction):
            raise LocalProtocolError("not the append of a transaction")
        self._under_way.appends[node_id] = {*self._under_way.appends.get(node_id, ()), partition}
        done = self._host.guarded(partial(self._appended, node_id, partition, producer))
        state = self._host.state
        message = producer_messages.produce(state.topic, {partition: request.batch}, state.transactional_id(partition))
        version = channel.highest(ApiKey.PRODUCE, producer_messages.PRODUCE_VERSION_MAX)
        channel.send_request(ApiKey.PRODUCE, version, message, done)
        return True

    # Responses. None: the outcome is unknown.

    def _appended(
        self, node_id: int, partition: int, producer: StateProducer, response: messages.ProduceResponse | None
    ) -> None:
        in_flight = {*self._under_way.appends.pop(node_id, ())} - {partition}
        if in_flight:
            self._under_way.appends[node_id] = in_flight
        if not self._host.is_current(partition, producer):
            return
        code, offset = _produced(partition, response)
        now = self._host.now()
        self._trouble(TopicPartition(self._host.state.topic, partition), code)
        if code is None or code in MOVED:
            forget(self._host.leaders, partition, node_id)
        outcomes = producer.in_flight(now) if code is None else producer.appended(code, offset, now)
        self._host.settle(partition, outcomes)

    def _written(
        self,
        node_id: int,
        partition: int,
        producer: StateProducer,
        place: TopicPartition,
        response: messages.ProduceResponse | None,
    ) -> None:
        code, _ = _produced(place.partition, response)
        if (code is None or code in MOVED) and self._outside.get(place) == node_id:
            del self._outside[place]
        if self._host.is_current(partition, producer):
            self._trouble(place, code)
            self._settle(partition, producer, producer.transactions.written(place, code, self._host.now()))

    def _located(
        self,
        _node_id: int,
        partition: int,
        producer: StateProducer,
        topics: Sequence[str],
        response: messages.MetadataResponse | None,
    ) -> None:
        codes: dict[TopicPartition, ErrorCode] = {}
        errors: dict[str | None, ErrorCode] = {}
        if len(self._outside) >= LEADERS_MAX:
            self._outside.clear()
        for topic in () if response is None else response.topics or ():
            errors[topic.name] = ErrorCode.of(topic.error_code)
            for entry in topic.partitions:
                place = TopicPartition(topic.name or "", entry.partition_index)
                if entry.leader_id == UNKNOWN_NODE:
                    codes[place] = ErrorCode.LEADER_NOT_AVAILABLE
                else:
                    self._outside[place] = entry.leader_id
        if not self._host.is_current(partition, producer):
            return
        missing: list[ErrorCode | None] = []
        for place in producer.transactions.places():
            if place.topic in topics and place not in self._outside:
                code = errors.get(place.topic) or codes.get(place, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                missing.append(None if response is None else code)
        self._settle(partition, producer, producer.transactions.located(missing, self._host.now()))

    def _added(
        self,
        node_id: int,
        partition: int,
        producer: StateProducer,
        response: messages.AddPartitionsToTxnResponse | None,
    ) -> None:
        code: ErrorCode | None = None
        if response is not None:
            codes = [
                ErrorCode.of(entry.partition_error_code)
                for topic in response.results_by_topic_v3_and_below
                for entry in topic.results_by_partition
            ]
            code = next((code for code in codes if code not in (NO_ERROR, ErrorCode.OPERATION_NOT_ATTEMPTED)), NO_ERROR)
        self._coordinated(node_id, partition, producer, code, producer.transactions.added)

    def _ended(
        self, node_id: int, partition: int, producer: StateProducer, response: messages.EndTxnResponse | None
    ) -> None:
        code = None if response is None else ErrorCode.of(response.error_code)
        self._coordinated(node_id, partition, producer, code, producer.transactions.ended)

    def _coordinated(
        self,
        node_id: int,
        partition: int,
        producer: StateProducer,
        code: ErrorCode | None,
        process: Callable[[ErrorCode | None, float], list[TransactionOutcome]],
    ) -> None:
        if code is None or code in MOVED:
            forget(self._host.coordinators, partition, node_id)
        if self._host.is_current(partition, producer):
            self._under_way.identifies.pop(partition, None)
            self._settle(partition, producer, process(code, self._host.now()))

    def _settle(self, partition: int, producer: StateProducer, results: Iterable[TransactionOutcome]) -> None:
        self._host.settle(partition, producer.settle(results))

    def _trouble(self, place: TopicPartition, code: ErrorCode | None) -> None:
        if code is not None and code != NO_ERROR:
            self._notes("state-append-failed", topic=place.topic, partition=place.partition, reason=code.name)


def _produced(partition: int, response: messages.ProduceResponse | None) -> tuple[ErrorCode | None, int]:
    """Return code and offset. The code is None if the outcome is unknown."""
    entry = producer_messages.by_partition(response).get(partition)
    return (None, -1) if entry is None else (ErrorCode.of(entry.error_code), entry.base_offset)
