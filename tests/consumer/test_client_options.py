"""Settings that both kinds of consumer have: what one calls a mistake, the other does."""

from __future__ import annotations

import pytest
from kafka_share_proxy.consumer.client_options import ClientOptions
from kafka_share_proxy.consumer.options import ConfigurationError, ConsumerOptions
from kafka_share_proxy.consumer.share.share_options import ShareConsumerOptions

KINDS = (ConsumerOptions, ShareConsumerOptions)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("options", "text"), [
    ({"retry_backoff_s": 2.0}, r"retry\.backoff\.ms must not be above retry\.backoff\.max\.ms"),
    ({"max_poll_interval_s": 0.0}, r"max\.poll\.interval\.ms must be above 0"),
    ({"request_timeout_s": -1.0}, r"request\.timeout\.ms must be above 0"),
    ({"fetch_max_bytes": 0}, r"fetch\.max\.bytes must be above 0"),
])  # fmt: skip
def test_an_option_that_cannot_work_is_named(kind: type[ClientOptions], options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        kind(group_id="g", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_is_named_by_its_id(kind: type[ClientOptions]) -> None:
    assert kind(group_id="g").group == "g"
    assert ConsumerOptions().group == ""
