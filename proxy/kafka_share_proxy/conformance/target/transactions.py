"""Transactional producers (TransactionCoordinator and TransactionMetadata of Kafka 4.3; KIP-98, KIP-360, KIP-890).

Markers are written immediately, so that no transaction is ever in a Prepare state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from kafka_share_proxy.conformance.target.clock import Clock
from kafka_share_proxy.conformance.target.coordinators import slot_of
from kafka_share_proxy.conformance.target.group_registry import GroupRegistry
from kafka_share_proxy.conformance.target.timers import ClusterTimer, ClusterTimers
from kafka_share_proxy.conformance.target.topics import TopicRegistry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

NO_ID, NO_EPOCH = -1, -1
LAST_EPOCH = (1 << 15) - 2
"""Largest epoch of a producer id. The next one gets a new id."""
OFFSETS_TOPIC = "__consumer_offsets"
COORDINATOR_EPOCH = 0
TRANSACTIONS_MAX = 100_000
"""Maximum number of transactional ids. A further one gets KAFKA_STORAGE_ERROR."""


class TransactionState(Enum):
    """States by the names that DescribeTransactions returns."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


class ProducerIdentity(NamedTuple):
    """Producer id and epoch."""

    producer_id: int
    epoch: int


@dataclass(eq=False)
class TransactionalProducer:
    """State of one transactional id."""

    transactional_id: str
    producer_id: int
    previous_id: int = NO_ID
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    partitions: set[TopicPartition] = field(default_factory=set)
    """Partitions of the open transaction, those of OFFSETS_TOPIC for its groups."""
    started_ms: int = -1
    timer: ClusterTimer | None = field(default=None, repr=False)

    @property
    def is_exhausted(self) -> bool:
        return self.epoch >= LAST_EPOCH

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)


Result = ProducerIdentity | ErrorCode


class Transactions:
    """All producer ids and transactions of a cluster."""

    def __init__(
        self, topics: TopicRegistry, groups: GroupRegistry, clock: Clock, timers: ClusterTimers, timeout_max_ms: int
    ) -> None:
        self._topics, self._groups, self._clock, self._timers = topics, groups, clock, timers
        self._timeout_max_ms = timeout_max_ms
        self._producers: dict[str, TransactionalProducer] = {}
        self._next_id = 0

    @property
    def producers(self) -> Mapping[str, TransactionalProducer]:
        return self._producers

    def new_identity(self) -> ProducerIdentity:
        """Return a new producer id with epoch 0."""
        return ProducerIdentity(self._new_id(), 0)

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    # InitProducerId

    def begin_producer(self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None) -> Result:
        """Fence earlier producers of a transactional id. `expected`: identity that the producer has (KIP-360)."""
        if not 0 < timeout_ms <= self._timeout_max_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        producer = self._producers.get(transactional_id)
        if producer is None:
            if len(self._producers) >= TRANSACTIONS_MAX:
                return ErrorCode.KAFKA_STORAGE_ERROR
            producer = self._producers[transactional_id] = TransactionalProducer(transactional_id, self._new_id())
        if expected is not None and not _is_valid(producer, expected):
            return ErrorCode.PRODUCER_FENCED
        if producer.state is TransactionState.ONGOING:
            self._end(producer, commits=False, bumps=True)
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return self._begin(producer, timeout_ms, expected)

    def _begin(self, producer: TransactionalProducer, timeout_ms: int, expected: ProducerIdentity | None) -> Result:
        if producer.is_exhausted and (expected is None or expected.epoch == producer.epoch):
            last = producer.epoch if expected is not None else NO_EPOCH
            producer.previous_id, producer.producer_id = producer.producer_id, self._new_id()
            producer.epoch, producer.last_epoch = 0, last
        elif expected is None:
            producer.epoch, producer.last_epoch = producer.epoch + 1, NO_EPOCH
        elif producer.epoch in (NO_EPOCH, expected.epoch):
            producer.epoch, producer.last_epoch = producer.epoch + 1, producer.epoch
        elif expected.epoch != producer.last_epoch:
            return ErrorCode.PRODUCER_FENCED
        producer.state, producer.timeout_ms, producer.started_ms = TransactionState.EMPTY, timeout_ms, -1
        return producer.identity

    # Partitions

    def add(self, transactional_id: str, identity: ProducerIdentity, partitions: Iterable[TopicPartition]) -> ErrorCode:
        """Add partitions to the transaction, which begins with the first."""
        producer = self._find_producer(transactional_id, identity)
        if isinstance(producer, ErrorCode):
            return producer
        if producer.state is not TransactionState.ONGOING:
            producer.state, producer.started_ms = TransactionState.ONGOING, self._clock.wall_ms()
            deadline = self._clock.now() + producer.timeout_ms / 1000
            producer.timer = self._timers.call_at(deadline, lambda: self._end(producer, commits=False, bumps=True))
        producer.partitions.update(partitions)
        return ErrorCode.NONE

    def verify(self, transactional_id: str, identity: ProducerIdentity, partition: TopicPartition) -> ErrorCode:
        """Check that a partition was added to the transaction. TRANSACTION_ABORTABLE if not (KIP-890)."""
        producer = self._find_producer(transactional_id, identity)
        if isinstance(producer, ErrorCode):
            return producer
        return ErrorCode.NONE if partition in producer.partitions else ErrorCode.TRANSACTION_ABORTABLE

    def _find_producer(self, transactional_id: str, identity: ProducerIdentity) -> TransactionalProducer | ErrorCode:
        """Return the producer with this identity, or the error for another one."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        producer = self._producers.get(transactional_id)
        if producer is None or producer.producer_id != identity.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return producer if producer.epoch == identity.epoch else ErrorCode.PRODUCER_FENCED

    # EndTxn

    def end(self, transactional_id: str, identity: ProducerIdentity, *, commits: bool, bumps: bool) -> Result:
        """Commit or abort. `bumps`: True for version 5, where each transaction has an epoch (KIP-890)."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        producer = self._producers.get(transactional_id)
        if producer is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return self._end_bumping(producer, identity, commits) if bumps else self._end_old(producer, identity, commits)

    def _end_old(self, producer: TransactionalProducer, identity: ProducerIdentity, commits: bool) -> Result:
        current_producer = self._find_producer(producer.transactional_id, identity)
        if isinstance(current_producer, ErrorCode):
            return current_producer
        if producer.state is TransactionState.ONGOING:
            self._end(producer, commits=commits, bumps=False)
            return producer.identity
        is_done = producer.state is _completed(commits)
        return producer.identity if is_done else ErrorCode.INVALID_TXN_STATE

    def _end_bumping(self, producer: TransactionalProducer, identity: ProducerIdentity, commits: bool) -> Result:
        is_complete = producer.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
        overflowed = (
            producer.previous_id == identity.producer_id and identity.epoch == LAST_EPOCH and producer.epoch == 0
        )
        retries = is_complete and (producer.epoch == identity.epoch + 1 or overflowed)
        if producer.producer_id != identity.producer_id and not overflowed:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if not retries and producer.epoch != identity.epoch:
            return ErrorCode.PRODUCER_FENCED
        if retries:
            return producer.identity if producer.state is _completed(commits) else ErrorCode.INVALID_TXN_STATE
        if producer.state is not TransactionState.ONGOING and commits:
            return ErrorCode.INVALID_TXN_STATE
        self._end(producer, commits=commits, bumps=True)
        return producer.identity

    def _end(self, producer: TransactionalProducer, *, commits: bool, bumps: bool) -> None:
        """Write the markers. With `bumps` they and the producer have the next epoch."""
        if producer.timer is not None:
            producer.timer.cancel()
        if producer.started_ms < 0 or producer.state is not TransactionState.ONGOING:
            producer.started_ms = self._clock.wall_ms()
        if bumps:
            producer.last_epoch, producer.epoch = producer.epoch, producer.epoch + 1
        self._write_markers(producer, commits=commits)
        self._groups.end_transaction(producer.producer_id, commits=commits)
        producer.partitions = set()
        producer.state = _completed(commits)
        if bumps and producer.epoch > LAST_EPOCH:
            producer.previous_id, producer.producer_id, producer.epoch = producer.producer_id, self._new_id(), 0

    def _write_markers(self, producer: TransactionalProducer, *, commits: bool) -> None:
        for name, index in sorted(producer.partitions):
            topic = self._topics.with_name(name)
            partition = None if topic is None else topic.partition(index)
            if partition is not None:
                partition.log.append_marker(
                    producer.producer_id,
                    producer.epoch,
                    commits=commits,
                    coordinator_epoch=COORDINATOR_EPOCH,
                    leader_epoch=partition.leader_epoch,
                    now_ms=self._clock.wall_ms(),
                )
                partition.changed.notify()


def offsets_partition(group_id: str) -> TopicPartition:
    """Return the partition of a group's offsets, which a transaction contains."""
    return TopicPartition(OFFSETS_TOPIC, slot_of(group_id))


def _completed(commits: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT


def _is_valid(producer: TransactionalProducer, expected: ProducerIdentity) -> bool:
    if producer.epoch == NO_EPOCH or expected.producer_id == producer.producer_id:
        return True
    return expected.producer_id == producer.previous_id and expected.epoch >= LAST_EPOCH
