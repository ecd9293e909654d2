"""Settings of topics."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.topic_configs import TopicConfigs, mistake_in
from kafka_share_proxy.wire.records import compression


def test_unknown_names_and_values_are_named() -> None:
    assert mistake_in("retention.ms", "5") is None
    assert mistake_in("no.such", "5") == "Unknown topic config name: no.such"
    assert mistake_in("cleanup.policy", "") == "Invalid value  for configuration cleanup.policy"
    assert mistake_in("compression.type", "gzip") is None
    assert mistake_in("compression.type", "zip") == "Invalid value zip for configuration compression.type"


def test_defaults_apply_to_what_is_not_stored() -> None:
    configs = TopicConfigs({"max.message.bytes": "7"})
    assert (configs.max_message_bytes, configs.min_insync_replicas, configs.log_append_time) == (7, 1, False)
    assert [TopicConfigs(each).codec for each in ({}, {"compression.type": "lz4"})] == [None, compression.LZ4]
