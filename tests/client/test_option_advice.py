"""Suggestions for a misspelt option name."""

from __future__ import annotations

import pytest
from kafka_share_proxy.client.option_advice import option_advice
from kafka_share_proxy.consumer.option_checks import names
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.share.share_options import ShareConsumerOptions

KNOWN, SHARE = names(ConsumerOptions), names(ShareConsumerOptions)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("enable_auto_commit", "auto_commit_interval_s=5.0"),
        ("enable.auto.commit", "auto_commit_interval_s=5.0"),
        ("auto_commit_interval_ms", "say auto_commit_interval_s=, in seconds"),
        ("group.id", "say group="),
        ("heartbeat.interval.ms", "say heartbeat_interval_s=, in seconds"),
        ("auto.offset.reset", "write auto_offset_reset="),
        ("partition.assignment.strategy", "say assignors="),
        ("ssl.ca.location", "say tls="),
        ("auto_offset_rest", "did you mean 'auto_offset_reset'?"),
        ("isolation.level", "say read_committed=True"),
        ("held_records_max", "only share consumers have it"),
        ("xyz", "there are group_id, "),
    ],
)
def test_the_advice_names_the_option_that_is_meant(name: str, words: str) -> None:
    assert words in option_advice(name, KNOWN, SHARE)


def test_options_of_the_other_consumer_are_reported() -> None:
    assert option_advice("assignors", SHARE, KNOWN) == "only consumers without locks have it"
