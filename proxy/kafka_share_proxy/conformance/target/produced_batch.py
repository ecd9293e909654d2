"""Checks of the records in a Produce request (ProduceRequest.validateRecords and LogValidator of Kafka 4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from struct import Struct

from kafka_share_proxy.conformance.target.topic_configs import TopicConfigs
from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError
from kafka_share_proxy.wire.records import compression, records
from kafka_share_proxy.wire.records.records import (
    COMPRESSION_MASK,
    DECOMPRESSED_MAX,
    HEADER,
    LOG_OVERHEAD,
    BatchHeader,
    Record,
)

ZSTD_SINCE = 7
"""Version of Produce from which on zstd is accepted (KIP-110)."""
WITHOUT_LOG_START = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE)
_MAX_TIMESTAMP_AT = 35
_ATTRIBUTES_AT = 21
_SIZE_AT = 8
_INT16, _INT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">q")


@dataclass(frozen=True)
class BatchRefused:
    """Reason why records are refused."""

    error: ErrorCode
    message: str
    indexes: Sequence[tuple[int, str]] = ()
    """(index in the batch, text) of the records that are at fault."""
    is_appending: bool = False
    """True if the log refused them: then the response has the start of the log."""


@dataclass(frozen=True)
class ProducedBatch:
    """One batch that may be appended."""

    data: bytes
    header: BatchHeader


def check_batch(
    records_field: Buffer | None, version: int, configs: TopicConfigs, now_ms: int
) -> ProducedBatch | BatchRefused:
    """Return the batch of a Produce request, with the broker's timestamp where the topic says so."""
    data = b"" if records_field is None else bytes(records_field)
    header = _only_batch(data, version)
    if isinstance(header, BatchRefused):
        return header
    refused = _check_header(data, header, configs)
    if refused is not None:
        return replace(refused, is_appending=refused.error not in WITHOUT_LOG_START)
    try:
        area, positions = records.find_records(data, header)
    except RemoteProtocolError as error:
        return BatchRefused(ErrorCode.INVALID_RECORD, str(error))
    refused = _check_records(positions.build(area, Record, header.timestamp_type), configs, now_ms)
    if refused is not None:
        return replace(refused, is_appending=True)
    batch = _stamped(data, now_ms) if configs.log_append_time else ProducedBatch(data, header)
    return batch if configs.codec in (None, header.compression) else _compressed(batch, configs.codec)


def _only_batch(data: bytes, version: int) -> BatchHeader | BatchRefused:
    if not data:
        return BatchRefused(
            ErrorCode.INVALID_RECORD, f"Produce requests with version {version} must have a record batch"
        )
    try:
        batches = list(records.iter_batches(data))
    except RemoteProtocolError as error:
        return BatchRefused(ErrorCode.CORRUPT_MESSAGE, str(error))
    if len(batches) != 1 or batches[0].magic != 2:
        text = "must have exactly one whole record batch of magic 2"
        return BatchRefused(ErrorCode.INVALID_RECORD, f"Produce requests with version {version} {text}")
    if batches[0].compression == compression.ZSTD and version < ZSTD_SINCE:
        return BatchRefused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Produce version {version} is older than zstd")
    if batches[0].size != len(data):
        return BatchRefused(ErrorCode.INVALID_RECORD, f"{len(data) - batches[0].size} bytes after the record batch")
    return batches[0]


def _check_header(data: bytes, header: BatchHeader, configs: TopicConfigs) -> BatchRefused | None:
    if header.base_offset != 0:
        return BatchRefused(
            ErrorCode.INVALID_RECORD, f"The base offset of the record batch is {header.base_offset}, not 0"
        )
    if len(data) > configs.max_message_bytes:
        text = f"The record batch size is {len(data)} bytes which exceeds the maximum of {configs.max_message_bytes}."
        return BatchRefused(ErrorCode.MESSAGE_TOO_LARGE, text)
    if not records.has_valid_checksum(data):
        return BatchRefused(ErrorCode.CORRUPT_MESSAGE, "The checksum of the record batch is wrong.")
    if header.is_control:
        return BatchRefused(ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records")
    if header.records_count < 1 or header.records_count != header.last_offset - header.base_offset + 1:
        text = f"{header.records_count} records with the last offset delta {header.last_offset}"
        return BatchRefused(ErrorCode.INVALID_RECORD, text)
    if header.is_log_append_time:
        return BatchRefused(ErrorCode.INVALID_TIMESTAMP, "The timestamp type LogAppendTime is the broker's to set")
    return _check_producer(header)


def _check_producer(header: BatchHeader) -> BatchRefused | None:
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        text = f"producer id {header.producer_id} with epoch {header.producer_epoch}, sequence {header.base_sequence}"
        return BatchRefused(ErrorCode.INVALID_RECORD, text)
    if header.producer_id < 0 and header.is_transactional:
        return BatchRefused(ErrorCode.INVALID_RECORD, "a transactional batch without a producer id")
    return None


def _check_records(decoded: Sequence[Record], configs: TopicConfigs, now_ms: int) -> BatchRefused | None:
    if configs.compacts:
        keyless = [
            (index, "One or more records have been rejected: no key")
            for index, r in enumerate(decoded)
            if r.key is None
        ]
        if keyless:
            return BatchRefused(ErrorCode.INVALID_RECORD, "Compacted topic cannot accept message without key", keyless)
    if not configs.log_append_time:
        latest = now_ms + configs.timestamp_after_max_ms
        earliest = now_ms - configs.timestamp_before_max_ms
        late = [
            (i, f"Timestamp {r.timestamp} is out of range")
            for i, r in enumerate(decoded)
            if not _fits(r, earliest, latest)
        ]
        if late:
            return BatchRefused(ErrorCode.INVALID_TIMESTAMP, "One or more records have an invalid timestamp", late)
    return None


def _fits(record: Record, earliest: int, latest: int) -> bool:
    return record.timestamp == records.NO_TIMESTAMP or earliest <= record.timestamp <= latest


def _stamped(data: bytes, now_ms: int) -> ProducedBatch:
    changed = bytearray(data)
    attributes = _INT16.unpack_from(changed, _ATTRIBUTES_AT)[0] | records.TIMESTAMP_TYPE_MASK
    _INT16.pack_into(changed, _ATTRIBUTES_AT, attributes)
    _INT64.pack_into(changed, _MAX_TIMESTAMP_AT, now_ms)
    sealed = records.seal(bytes(changed))
    return ProducedBatch(sealed, records.read_header(sealed))


def _compressed(batch: ProducedBatch, codec: int | None) -> ProducedBatch:
    """Return the batch with the codec of its topic."""
    codec = codec or compression.NONE
    body = batch.data[HEADER.size :]
    if batch.header.compression != compression.NONE:
        body = bytes(compression.decompress(batch.header.compression, body, DECOMPRESSED_MAX))
    changed = bytearray(batch.data[: HEADER.size] + (compression.compress(codec, body) if codec else body))
    attributes = _INT16.unpack_from(changed, _ATTRIBUTES_AT)[0] & ~COMPRESSION_MASK | codec
    _INT16.pack_into(changed, _ATTRIBUTES_AT, attributes)
    _INT32.pack_into(changed, _SIZE_AT, len(changed) - LOG_OVERHEAD)
    sealed = records.seal(bytes(changed))
    return ProducedBatch(sealed, records.read_header(sealed))
