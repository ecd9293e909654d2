"""Checks of produced records."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.target.produced_batch import BatchRefused, ProducedBatch, check_batch
from kafka_share_proxy.conformance.target.topic_configs import TopicConfigs
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import compression, records

from tests.support.target_caller import START_MS, batch


def check(data: bytes, version: int = 12, **configs: str) -> ProducedBatch | BatchRefused:
    stored = {name.replace("_", "."): value for name, value in configs.items()}
    return check_batch(data, version, TopicConfigs(stored), START_MS)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (batch("a") * 2, ErrorCode.INVALID_RECORD),
        (batch("a")[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        (batch("a", is_control=True), ErrorCode.INVALID_RECORD),
        (batch("a", is_transactional=True), ErrorCode.INVALID_RECORD),
        (b"\0" * 7 + b"\1" + batch("a")[8:], ErrorCode.INVALID_RECORD),
    ],
    ids=["empty", "two", "checksum", "control", "no producer", "base offset"],
)
def test_wrong_batches_are_refused(data: bytes, code: ErrorCode) -> None:
    refused = check(data)
    assert isinstance(refused, BatchRefused)
    assert refused.error == code


def test_settings_of_the_topic_are_applied() -> None:
    large, keyless = check(batch("a"), max_message_bytes="10"), check(batch("a"), cleanup_policy="compact")
    late = check(batch("a"), message_timestamp_before_max_ms="0")
    assert isinstance(large, BatchRefused)
    assert isinstance(keyless, BatchRefused)
    assert (large.error, keyless.error) == (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD)
    assert isinstance(late, ProducedBatch)


def test_the_broker_sets_timestamps_if_the_topic_says_so() -> None:
    stamped = check_batch(batch("a"), 12, TopicConfigs({"message.timestamp.type": "LogAppendTime"}), START_MS + 5)
    assert isinstance(stamped, ProducedBatch)
    assert [each.timestamp for each in records.decode_records(stamped.data)] == [START_MS + 5]
    assert records.has_valid_checksum(stamped.data)


def test_zstd_needs_version_7() -> None:
    refused = check(batch("a", codec=4), version=6)
    assert isinstance(refused, BatchRefused)
    assert refused.error == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("name", ["gzip", "zstd", "uncompressed"])
def test_a_batch_gets_the_codec_of_its_topic(name: str) -> None:
    codec = {"gzip": compression.GZIP, "zstd": compression.ZSTD, "uncompressed": compression.NONE}[name]
    source = check(batch("a", "b"), compression_type="lz4")
    assert isinstance(source, ProducedBatch)
    checked = check(source.data, compression_type=name)
    assert isinstance(checked, ProducedBatch)
    assert checked.header.compression == codec
    assert records.has_valid_checksum(checked.data)
    assert [each.value for each in records.decode_records(checked.data)] == [b"a", b"b"]
