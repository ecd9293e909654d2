"""Producer whose records and committed offsets become visible together (KIP-98), for commands of the proxy.

Each transaction has records of several partitions, and offsets of one consumer group without members. The protocol is
that of clients before KIP-890 part 2, which every supported broker accepts: partitions are added to the transaction by
a request, and the epoch is constant until the producer identifies itself again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import trio

from kafka_share_proxy.brokers import producer_messages
from kafka_share_proxy.brokers.open_nodes import OpenNodes
from kafka_share_proxy.brokers.queries import COORDINATOR_ELSEWHERE, CoordinatorOf
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, error_name
from kafka_share_proxy.wire.records import compression
from kafka_share_proxy.wire.records.records import Record, build_batch
from kafka_share_proxy.wire.values import Address, TopicPartition

ADD_OFFSETS_VERSION, COMMIT_VERSION = 3, 3
REPLICAS_MS = 10_000
TRIES, PAUSE_S = 100, 0.1
"""Attempts of one request, and seconds between them: an earlier transaction is ended, or a coordinator loads."""
NO_PRODUCER = -1
NO_GENERATION = -1

_AGAIN = COORDINATOR_ELSEWHERE | {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


class TransactionFailed(ProxyError):
    """A transaction was not committed, or its outcome is unknown. `identify` ends it."""


class CommittingProducer:
    """Producer with one transactional id, which fences every earlier one. Not for concurrent tasks."""

    def __init__(self, nodes: OpenNodes, transactional_id: str, group: str) -> None:
        """`group`: consumer group whose offsets are committed."""
        self._nodes, self._name, self._group = nodes, transactional_id, group
        self._producer_id, self._epoch = NO_PRODUCER, -1
        self._sequences: dict[TopicPartition, int] = {}

    @property
    def _writer(self) -> tuple[str, int, int]:
        """Transactional id, producer id and epoch."""
        return self._name, self._producer_id, self._epoch

    async def identify(self) -> None:
        """End the open transaction of any producer of this id, and fence it. Raises ProxyError."""
        request = producer_messages.init_producer_id(self._name, NO_PRODUCER, -1)
        version = producer_messages.INIT_PRODUCER_ID_VERSION_MAX

        async def attempt(coordinator: Address) -> int:
            response = await self._nodes.send_request(coordinator, ApiKey.INIT_PRODUCER_ID, request, version)
            self._producer_id, self._epoch = response.producer_id, response.producer_epoch
            return int(response.error_code)

        await self._at_coordinator(CoordinatorOf.TRANSACTION, self._name, "InitProducerId", attempt)
        self._sequences.clear()

    async def commit(
        self,
        records: Mapping[TopicPartition, Sequence[Record]],
        offsets: Mapping[TopicPartition, tuple[int, str]],
    ) -> None:
        """Write records, and commit offsets with their metadata, all or none. Raises TransactionFailed."""
        if records:
            await self._add_partitions(list(records))
        await self._add_offsets()
        for place, batch in records.items():
            await self._produce(place, batch)
        await self._commit_offsets(offsets)
        await self._end()

    async def _add_partitions(self, places: Sequence[TopicPartition]) -> None:
        request = producer_messages.add_partitions(*self._writer, places)
        version = producer_messages.ADD_PARTITIONS_VERSION_MAX

        async def attempt(coordinator: Address) -> int:
            response = await self._nodes.send_request(coordinator, ApiKey.ADD_PARTITIONS_TO_TXN, request, version)
            return _first_error(
                each.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            )

        await self._at_coordinator(CoordinatorOf.TRANSACTION, self._name, "AddPartitionsToTxn", attempt)

    async def _add_offsets(self) -> None:
        request = messages.AddOffsetsToTxnRequest(
            transactional_id=self._name,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            group_id=self._group,
        )

        async def attempt(coordinator: Address) -> int:
            response = await self._nodes.send_request(
                coordinator, ApiKey.ADD_OFFSETS_TO_TXN, request, ADD_OFFSETS_VERSION
            )
            return int(response.error_code)

        await self._at_coordinator(CoordinatorOf.TRANSACTION, self._name, "AddOffsetsToTxn", attempt)

    async def _produce(self, place: TopicPartition, records: Sequence[Record]) -> None:
        sequence = self._sequences.get(place, 0)
        data = build_batch(
            0,
            records,
            codec=compression.ZSTD,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = producer_messages.produce(place.topic, {place.partition: data}, self._name, timeout_ms=REPLICAS_MS)
        version = producer_messages.PRODUCE_VERSION_MAX
        try:
            response = await self._nodes.to_leader(place, ApiKey.PRODUCE, request, version)
        except ProxyError as error:
            raise TransactionFailed(f"Produce to {place.topic}-{place.partition}: {error}") from None
        code = producer_messages.by_partition(response)[place.partition].error_code
        _check(code, f"Produce to {place.topic}-{place.partition}")
        self._sequences[place] = sequence + len(records)

    async def _commit_offsets(self, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        message = messages.TxnOffsetCommitRequest
        partition = message.TxnOffsetCommitRequestPartition
        topics: dict[str, list[messages.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]] = {}
        for place, (offset, metadata) in offsets.items():
            entry = partition(partition_index=place.partition, committed_offset=offset, committed_metadata=metadata)
            topics.setdefault(place.topic, []).append(entry)
        request = message(
            transactional_id=self._name,
            group_id=self._group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            generation_id_or_member_epoch=NO_GENERATION,
            member_id="",
            topics=[message.TxnOffsetCommitRequestTopic(name=n, partitions=p) for n, p in topics.items()],
        )

        async def attempt(coordinator: Address) -> int:
            response = await self._nodes.send_request(coordinator, ApiKey.TXN_OFFSET_COMMIT, request, COMMIT_VERSION)
            return _first_error(each.error_code for topic in response.topics for each in topic.partitions)

        await self._at_coordinator(CoordinatorOf.GROUP, self._group, "TxnOffsetCommit", attempt)

    async def _end(self) -> None:
        request = producer_messages.end_txn(*self._writer, committed=True)
        version = producer_messages.END_TXN_VERSION_MAX

        async def attempt(coordinator: Address) -> int:
            response = await self._nodes.send_request(coordinator, ApiKey.END_TXN, request, version)
            return int(response.error_code)

        await self._at_coordinator(CoordinatorOf.TRANSACTION, self._name, "EndTxn", attempt)

    async def _at_coordinator(
        self, kind: CoordinatorOf, name: str, api: str, attempt: Callable[[Address], Awaitable[int]]
    ) -> None:
        code = int(ErrorCode.NONE)
        for _ in range(TRIES):
            try:
                code = await attempt(await self._nodes.coordinator(kind, name))
            except ProxyError as error:
                raise TransactionFailed(f"{api}: {error}") from None
            if code not in _AGAIN:
                break
            await trio.sleep(PAUSE_S)
        _check(code, api)


def _check(code: int, api: str) -> None:
    if code != ErrorCode.NONE:
        raise TransactionFailed(f"{api}: {error_name(code)}")


def _first_error(codes: Iterable[int]) -> int:
    return next((int(code) for code in codes if code != ErrorCode.NONE), int(ErrorCode.NONE))
