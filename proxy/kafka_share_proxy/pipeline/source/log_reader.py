"""Reader of the records of one split, with blocking calls (pipeline/README.md rules 9 to 13).

The next Fetch is in flight while records are converted: its offset is known as soon as batches are counted. The round
trip and the work overlap without a thread, which a forked worker could not keep and a closed generator could not end.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafka_share_proxy.pipeline.kafka.cluster import (
    EARLIEST_TIMESTAMP,
    BlockingClusterClient,
    ReadRefused,
    TopicReplaced,
    TryAgain,
    check_code,
)
from kafka_share_proxy.pipeline.kafka.connection import BlockingConnection
from kafka_share_proxy.pipeline.kafka.fetch_sizes import FetchSizes
from kafka_share_proxy.pipeline.kafka.kept_connections import KeptConnections
from kafka_share_proxy.pipeline.source.key_ranges import KEY_FILTER_TAG, key_filter, scanned_to
from kafka_share_proxy.pipeline.source.options import SourceOptions
from kafka_share_proxy.pipeline.source.splits import Split
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost
from kafka_share_proxy.wire.records import fetched_records
from kafka_share_proxy.wire.records.batches import split_complete
from kafka_share_proxy.wire.records.record_views import LazyRecords
from kafka_share_proxy.wire.values import TopicPartition

FETCH_VERSION_MAX = 15
"""Highest version used of Fetch. In later versions, responses carry addresses that the proxy does not rewrite."""
IDS_SINCE, TAGS_SINCE = 13, 12
MAX_WAIT_MS = 500


class OffsetsLost(ProxyError):
    """Planned offsets are no longer in the log (failOnDataLoss)."""


class NotFiltered(ProxyError):
    """Key ranges were requested from a server that does not support them."""


class _Response(NamedTuple):
    data: messages.FetchResponse.PartitionData
    next_offset: int
    """Offset of the next fetch."""


def note_on_stderr(text: str) -> None:
    print(f"kafka-share-proxy: {text}", file=sys.stderr, flush=True)  # noqa: T201


class LogReader:
    """Reader of one split."""

    def __init__(self, options: SourceOptions, split: Split, note: Callable[[str], None] = note_on_stderr) -> None:
        self._options = options
        self._split = split
        self._density_of = split._replace(spans=())
        self._filter = key_filter(split.low, split.high, split.keys)
        self._note = note
        self._sizes = FetchSizes()
        self._in_flight: BlockingConnection | None = None

    def records(self, pool: KeptConnections | None = None) -> Iterator[LazyRecords]:
        """Yield all records in order. Without `pool`, new connections are opened and closed.

        Raises OffsetsLost, NotFiltered, Unavailable, ReadRefused, TopicReplaced, LoginRefused, CodecMissing, and
        RemoteProtocolError if the log cannot be read.
        """
        with BlockingClusterClient(self._options) if pool is None else pool.cluster(self._options) as cluster:
            self._sizes = cluster.fetch_sizes
            try:
                for start, end in self._split.spans:
                    yield from self._span(cluster, start, end)
            except TopicReplaced as error:
                if self._options.fail_on_data_loss:
                    raise
                self._note(f"{error}: what was not read of it is lost")

    def _span(self, cluster: BlockingClusterClient, start: int, end: int) -> Iterator[LazyRecords]:
        position, deadline = start, cluster.deadline()
        while position < end:
            try:
                response = self._fetched(cluster, position, end)
            except (TryAgain, UpstreamLost) as error:
                cluster.forget()
                self._in_flight = None
                deadline.wait(str(error))
                continue
            if response is None:
                position = self._skip_lost(cluster, position, end)
                continue
            if response.next_offset == position and deadline.is_over:
                deadline.wait(f"{self._split.topic_partition}: no record from offset {position} on, {end} was planned")
            if response.next_offset > position:
                deadline.restart()
            yield from self._records_in(response, position, end)
            position = response.next_offset

    def _records_in(self, response: _Response, position: int, end: int) -> Iterator[LazyRecords]:
        aborted = (response.data.aborted_transactions or ()) if self._options.is_committed else None
        for batch in fetched_records.fetched_records(response.data.records or b"", position, aborted):
            records = batch.records
            if len(records) and records.positions.offsets[-1] >= end:
                records = records[: bisect_left(records.positions.offsets, end)]
            if len(records):
                yield records

    # One response

    def _fetched(self, cluster: BlockingClusterClient, position: int, end: int) -> _Response | None:
        """Return the next response, or None if the offset is out of range."""
        connection = self._in_flight
        if connection is None:
            connection = cluster.leader(self._split.topic_partition, self._split.topic_id)
            self._send(connection, position, end)
        self._in_flight = None
        entry = self._entry(connection.receive())
        if entry.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return None
        if entry.error_code == ErrorCode.INCONSISTENT_TOPIC_ID:
            raise TryAgain(f"{self._split.topic_partition}: the leader knows another topic id")
        check_code(entry.error_code, f"{self._split.topic_partition} at offset {position}")
        next_offset = self._next_offset(entry, position)
        self._sizes.learn(self._density_of, next_offset - position, len(entry.records or b""))
        if position < next_offset < end:
            self._send(connection, next_offset, end)
            self._in_flight = connection
        return _Response(entry, next_offset)

    def _entry(self, response: messages.FetchResponse) -> messages.FetchResponse.PartitionData:
        check_code(response.error_code, f"Fetch of {self._split.topic_partition}")
        for topic in response.responses:
            for entry in topic.partitions:
                return entry
        raise TryAgain(f"{self._split.topic_partition} is not in the response")

    def _next_offset(self, entry: messages.FetchResponse.PartitionData, position: int) -> int:
        data = entry.records or b""
        next_offset = position
        if len(data):
            table, _ = split_complete(data)
            next_offset = max(position, table[-1].last_offset + 1) if len(table) else position
        if self._filter is None:
            return next_offset
        scanned = scanned_to(entry)
        if scanned is None and self._split.is_only_here:
            raise NotFiltered(
                f"{self._split.topic_partition}: the server does not filter by key: keyRanges and rangePlan need "
                "kafka-share-proxy as bootstrap; without it use offsetSplits"
            )
        return max(next_offset, scanned or 0)

    def _send(self, connection: BlockingConnection, position: int, end: int) -> None:
        version = connection.version(ApiKey.FETCH, FETCH_VERSION_MAX)
        if self._filter is not None and self._split.is_only_here and version < TAGS_SINCE:
            raise NotFiltered(f"{connection.address} has no Fetch v{TAGS_SINCE}, which key ranges need")
        connection.send(ApiKey.FETCH, self._request(position, end, version), version)

    def _request(self, position: int, end: int, version: int) -> messages.FetchRequest:
        size = self._sizes.request_bytes(self._density_of, end - position, self._options.fetch_bytes)
        entry = messages.FetchRequest.FetchPartition(
            partition=self._split.partition, fetch_offset=position, partition_max_bytes=size
        )
        if self._filter is not None and version >= TAGS_SINCE:
            entry.unknown_tags = ((KEY_FILTER_TAG, self._filter),)
        topic = messages.FetchRequest.FetchTopic(partitions=[entry])
        if version >= IDS_SINCE:
            topic.topic_id = self._split.topic_id
        else:
            topic.topic = self._split.topic
        return messages.FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=size,
            isolation_level=int(self._options.is_committed),
            topics=[topic],
        )

    # Lost offsets

    def _skip_lost(self, cluster: BlockingClusterClient, position: int, end: int) -> int:
        """Return the position after the lost offsets.

        Raises OffsetsLost if data loss is an error, and ReadRefused if the position is beyond the end of the log.
        """
        partition = self._split.topic_partition
        first = cluster.offsets([partition], EARLIEST_TIMESTAMP)[partition]
        if position >= first:
            raise ReadRefused(f"{partition}: offset {position} is after the end of the log")
        lost = min(first, end) - position
        text = f"{lost} offsets of {_range(partition, position, position + lost)} are lost; the log begins at {first}"
        if self._options.fail_on_data_loss:
            raise OffsetsLost(f"{text} (failOnDataLoss=false continues after them)")
        self._note(text)
        return position + lost


def _range(partition: TopicPartition, start: int, end: int) -> str:
    return f"{partition} [{start}, {end})"
