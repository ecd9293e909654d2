"""Settings of queues: checks, defaults and effect."""

from __future__ import annotations

import pytest
from kafka_share_proxy.sharegroups.model import queue_settings
from kafka_share_proxy.sharegroups.model.queue_settings import DEFAULTS, DeadLetterTarget, RedeliveryDelay, effective


def test_a_group_without_queue_settings_is_none() -> None:
    assert effective({}) is None
    assert effective(DEFAULTS) is None
    assert effective({queue_settings.SCAN_RECORDS: "500", queue_settings.DELAY_MAX: "5000"}) is None


def test_each_queue_setting_takes_effect() -> None:
    ordered = effective({"share.ordering": "key", "share.ordering.scan.records": "500"})
    assert ordered is not None
    assert (ordered.is_ordered, ordered.scan_records, ordered.redelivery, ordered.dead_letters) == (
        True,
        500,
        None,
        None,
    )
    stored = {"share.redelivery.delay.ms": "1500", "share.redelivery.delay.multiplier": "1.5"}
    delayed = effective(stored)
    assert delayed is not None
    assert (delayed.is_ordered, delayed.redelivery) == (False, RedeliveryDelay(1.5, 900.0, 1.5))
    copied = effective(
        {"errors.deadletterqueue.topic.name": "dlq.orders", "errors.deadletterqueue.copy.record.enable": "TRUE"}
    )
    assert copied is not None
    assert copied.dead_letters == DeadLetterTarget("dlq.orders", copies_records=True)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("share.ordering", "keys", "none, key"),
        ("share.ordering.scan.records", "99", "100 to"),
        ("share.ordering.scan.records", "ten", "type INT"),
        ("share.redelivery.delay.ms", "900001", "0 to 900000"),
        ("share.redelivery.delay.ms", "-1", "0 to 900000"),
        ("share.redelivery.delay.max.ms", "0", "1 to 900000"),
        ("share.redelivery.delay.multiplier", "0.5", "1 to 100"),
        ("share.redelivery.delay.multiplier", "nan", "1 to 100"),
        ("share.redelivery.delay.multiplier", "two", "type DOUBLE"),
        ("errors.deadletterqueue.topic.name", "__secret", "reserved"),
        ("errors.deadletterqueue.topic.name", "a b", "not a valid topic name"),
        ("errors.deadletterqueue.topic.name", "..", "not a valid topic name"),
        ("errors.deadletterqueue.copy.record.enable", "yes", "true or false"),
    ],
)
def test_an_invalid_value_is_refused_with_what_is_allowed(name: str, value: str, reason: str) -> None:
    mistake = queue_settings.mistake(name, value)
    assert mistake is not None
    assert mistake.startswith(f"Invalid value {value} for configuration {name}: ")
    assert reason in mistake


def test_every_default_is_valid() -> None:
    assert all(queue_settings.mistake(name, value) is None for name, value in DEFAULTS.items())
