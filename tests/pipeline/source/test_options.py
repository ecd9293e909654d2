"""Options of the data source: every mistake is named, with what would be right (pipeline/README.md rules 1 and 2)."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.pipeline.source.key_ranges import KeyRanges
from kafka_share_proxy.pipeline.source.options import STOCK_COLUMNS, BadOption, offset_range, read_options
from kafka_share_proxy.wire.values import Address, TopicPartition

LEAST = {"bootstrap": "one:9092", "topic": "orders"}


def test_names_are_compared_without_their_case_and_defaults_are_the_safe_ones() -> None:
    read = read_options({"BOOTSTRAP": "one:9092, [::1]:9093,two", "Topic": "orders, payments", "KEYRANGES": "2"})
    assert read.bootstrap == (Address("one", 9092), Address("::1", 9093), Address("two", 9092))
    assert read.topics == ("orders", "payments")
    assert read.ranges == KeyRanges((0, 1 << 31))
    assert read.columns == STOCK_COLUMNS
    assert read.is_committed
    assert read.fail_on_data_loss
    assert pickle.loads(pickle.dumps(read)) == read


def test_partitions_and_offsets_are_read_from_json() -> None:
    assigned = read_options(
        {"bootstrap": "one", "assign": '{"orders": [1, 0]}', "startingOffsets": '{"orders": {"0": 7}}'}
    )
    assert assigned.assigned == (TopicPartition("orders", 1), TopicPartition("orders", 0))
    assert assigned.starting == {TopicPartition("orders", 0): 7}
    holes = '[{"topic": "orders", "partition": 0, "first": 5, "last": 9}]'
    exact = read_options({"bootstrap": "one", "offsetRanges": holes})
    assert exact.offset_ranges == ((TopicPartition("orders", 0), OffsetSpan(5, 10)),)
    assert exact.topics == ("orders",)


def test_columns_are_those_that_are_requested() -> None:
    assert read_options(LEAST | {"includeValue": "false", "includeHeaders": "true"}).columns == (
        *("key", "topic", "partition", "offset", "timestamp", "timestampType", "headers"),
    )
    assert read_options(LEAST | {"includeKeyHash": "true"}).columns == (*STOCK_COLUMNS, "key_hash", "range_id")
    assert read_options(LEAST | {"columns": "offset, key"}).columns == ("offset", "key")


def test_a_plan_is_read_as_the_views_read_it(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "hash": "murmur2-32", "ranges": [[0, 5], [5, 4294967296]]}')
    assert read_options(LEAST | {"rangePlan": str(plan)}).ranges == KeyRanges((0, 5))
    plan.write_text('{"version": 1, "ranges": [[0, 5], [6, 4294967296]]}')
    with pytest.raises(BadOption, match="hashes 5 to 5 are in no range"):
        read_options(LEAST | {"rangePlan": str(plan)})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": "orders"}, "bootstrap names no server"),
        ({"bootstrap": "http://one"}, "write host:port"),
        ({"bootstrap": "one:0"}, "a port of 1 to 65535"),
        ({"bootstrap": "one"}, "say one of topic"),
        (LEAST | {"assign": '{"orders": [0]}'}, "say one of topic"),
        (LEAST | {"maxOffsetPerTrigger": "5"}, "did you mean 'maxOffsetsPerTrigger'"),
        (LEAST | {"qqq": "5"}, "there are bootstrap, topic"),
        (LEAST | {"keyRanges": "0"}, "1 to 65536 key ranges, not 0"),
        (LEAST | {"keyRanges": "many"}, "keyRanges='many'"),
        (LEAST | {"keyRanges": "2", "rangePlan": "x"}, "exclude each other"),
        (LEAST | {"rangePlan": "/nowhere/plan.json"}, "No such file"),
        (LEAST | {"offsetSplits": "0"}, "must be at least 1"),
        (LEAST | {"startingOffsets": "soon"}, "startingOffsets='soon'"),
        (LEAST | {"startingOffsets": '{"orders": {"0": -3}}'}, "-2 for earliest"),
        (LEAST | {"failOnDataLoss": "maybe"}, "write true or false"),
        (LEAST | {"columns": "key,colour"}, "name each once, of key, value"),
        (LEAST | {"isolationLevel": "serializable"}, "write read_committed or read_uncommitted"),
        (LEAST | {"sasl.mechanism": "GSSAPI"}, "one of PLAIN"),
        (LEAST | {"sasl.mechanism": "PLAIN"}, "sasl.username is missing"),
        (LEAST | {"sasl.mechanism": "PLAIN", "sasl.username": "a"}, "say one of sasl.passwordFile"),
        (LEAST | {"sasl.username": "a"}, "sasl.mechanism is missing"),
        ({"bootstrap": "one", "offsetRanges": '[{"topic": "a", "partition": 0, "first": 5}]'}, "'last' is missing"),
        ({"bootstrap": "one", "offsetRanges": '[{"topic": "a", "partition": 0, "first": 5, "last": 4}]'}, "no range"),
        ({"bootstrap": "one", "assign": "{}"}, "write {"),
    ],
)
def test_an_impossible_option_is_refused_with_advice(options: dict[str, str], text: str) -> None:
    with pytest.raises(BadOption) as refused:
        read_options(options)
    assert text in str(refused.value)


def test_a_password_is_not_shown() -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "secret", "tls.ca": "ca.pem"}
    read = read_options(LEAST | login)
    assert read.security.tls
    assert read.security.password == "secret"
    assert "secret" not in repr(read)


def test_a_hole_is_as_the_command_commits_writes_it() -> None:
    assert offset_range({"topic": "a", "partition": 1, "first": 0, "last": 0, "age_s": 3.5}) == (("a", 1), (0, 1))
