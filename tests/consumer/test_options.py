"""Settings are checked before anything is sent."""

from __future__ import annotations

import pytest
from kafka_share_proxy.consumer.groups.deadlines import DelayLimits
from kafka_share_proxy.consumer.options import ConfigurationError, ConsumerOptions


@pytest.mark.parametrize(("options", "text"), [
    ({"group_protocol": "fast"}, r"group\.protocol 'fast': one of classic, consumer"),
    ({"auto_offset_reset": "newest"}, r"auto\.offset\.reset 'newest'"),
    ({"assignors": ("range", "fair")}, "assignor 'fair'"),
    ({"assignors": ()}, "names no assignor"),
    ({"heartbeat_interval_s": 45.0}, r"heartbeat\.interval\.ms must be below"),
    ({"group_instance_id": "i"}, r"needs a group \(group\.id\)"),
    ({"auto_commit_interval_s": 5.0}, r"needs a group \(group\.id\)"),
    ({"retry_backoff_s": 2.0}, r"retry\.backoff\.ms must not"),
    ({"max_poll_interval_s": 0.0}, r"max\.poll\.interval\.ms must be above 0"),
    ({"max_revoke_delay_s": -1.0}, "max_revoke_delay must be above 0"),
])  # fmt: skip
def test_an_option_that_cannot_work_is_named(options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        ConsumerOptions(**options)  # type: ignore[arg-type]


def test_all_mistakes_are_reported_together() -> None:
    with pytest.raises(ConfigurationError, match=r"assignor 'x'.*; buffer_bytes_max=0: must be above 0"):
        ConsumerOptions(assignors=("x",), buffer_bytes_max=0)


def test_the_rebalance_timeout_is_the_poll_interval() -> None:
    options = ConsumerOptions(max_poll_interval_s=60.0, max_revoke_delay_s=9.0)
    assert options.delay_limits == DelayLimits(max_revoke_delay_s=9.0, rebalance_timeout_s=60.0)
