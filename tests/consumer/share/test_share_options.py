"""Settings of a share consumer: all mistakes are named together."""

from __future__ import annotations

import pytest
from kafka_share_proxy.consumer.options import ConfigurationError
from kafka_share_proxy.consumer.share.share_options import ShareConsumerOptions


def test_the_defaults_are_kafkas() -> None:
    options = ShareConsumerOptions(group_id="g")
    assert (options.group, options.is_explicit, options.limits_records) == ("g", False, False)
    assert (options.max_poll_records, options.fetch_max_bytes, options.fetch_max_wait_s) == (500, 52_428_800, 0.5)
    other = ShareConsumerOptions(group_id="g", acknowledgement_mode="explicit", acquire_mode="record_limit")
    assert (other.is_explicit, other.limits_records) == (True, True)


def test_all_mistakes_are_reported_together() -> None:
    with pytest.raises(ConfigurationError) as caught:
        ShareConsumerOptions(acknowledgement_mode="auto", acquire_mode="some", max_poll_records=0, retry_backoff_s=2.0)
    for part in ("needs a group", "implicit, explicit", "batch_optimized, record_limit", "max.poll.records", "backoff"):
        assert part in str(caught.value)


def test_a_poll_must_fit_into_what_may_be_held() -> None:
    with pytest.raises(ConfigurationError, match="held_records_max"):
        ShareConsumerOptions(group_id="g", max_poll_records=100, held_records_max=99)
