"""Settings of topics."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.target.topic_configs import KEYS, TopicConfigs, mistake_in
from kafka_share_proxy.wire.records import compression


def test_every_setting_accepts_its_default() -> None:
    assert mistake_in({key.name: key.default for key in KEYS.values()}) is None
    assert {key.parse(key.default) for key in KEYS.values()} == {key.default for key in KEYS.values()}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("no.such", "5", "Unknown topic config name: no.such"),
        ("cleanup.policy", "x", "String must be one of: compact, delete"),
        ("cleanup.policy", ",delete", "Values must not be empty"),
        ("compression.type", "zip", "String must be one of: uncompressed, gzip, snappy, lz4, zstd, producer"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("min.cleanable.dirty.ratio", "1.1", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "half", "Not a number of type DOUBLE"),
        ("max.message.bytes", "2147483648", "Not a number of type INT"),
        ("segment.bytes", "1048575", "Value must be at least 1048576"),
        ("preallocate", "yes", "Expected value to be either true or false"),
        ("leader.replication.throttled.replicas", "x", "It must be the literal '*' or a list of replicas"),
        ("remote.storage.enable", "TRUE", "Tiered Storage functionality is disabled in the broker"),
    ],
)
def test_unknown_names_and_values_are_named(name: str, value: str, text: str) -> None:
    assert text in (mistake_in({name: value}) or "")


def test_bounds_of_the_compaction_lag_do_not_cross() -> None:
    configs = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    assert mistake_in(configs) == "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"
    assert mistake_in({**configs, "max.compaction.lag.ms": "10"}) is None


def test_values_are_kept_as_a_broker_describes_them() -> None:
    requested_values = {
        "min.cleanable.dirty.ratio": " 1e-1 ",
        "cleanup.policy": "compact, delete",
        "preallocate": "True",
    }
    stored_values = {"min.cleanable.dirty.ratio": "0.1", "cleanup.policy": "compact,delete", "preallocate": "true"}
    assert TopicConfigs(requested_values).stored == stored_values


def test_defaults_apply_to_what_is_not_stored() -> None:
    configs = TopicConfigs({"max.message.bytes": "7"})
    assert (configs.max_message_bytes, configs.min_insync_replicas, configs.log_append_time) == (7, 1, False)
    assert [TopicConfigs(each).codec for each in ({}, {"compression.type": "lz4"})] == [None, compression.LZ4]
