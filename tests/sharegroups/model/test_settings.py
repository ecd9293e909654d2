"""Settings of share groups: bounds, clamping, error texts, offset resets."""

from __future__ import annotations

import pytest
from kafka_share_proxy.sharegroups.model import settings as module
from kafka_share_proxy.sharegroups.model.settings import (
    GROUP_CONFIGS,
    BrokerShareLimits,
    OffsetReset,
    ResetKind,
    check_stored,
    effective,
)

LIMITS = BrokerShareLimits()


def test_a_group_without_settings_has_the_brokers_defaults():
    """Defaults of KIP-932."""
    settings = effective({}, LIMITS)
    assert settings.lock_duration_s == 30.0
    assert settings.session_timeout_s == 45.0
    assert settings.heartbeat_interval_s == 5.0
    assert settings.offset_reset == OffsetReset(ResetKind.LATEST)
    assert settings.read_committed is False
    assert settings.delivery_count_limit == 5
    assert settings.max_record_locks == 2000
    assert settings.renew_enabled is True
    assert settings.assignment_interval_s == 1.0


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("share.record.lock.duration.ms", "14999", "group.share.min.record.lock.duration.ms"),
        ("share.record.lock.duration.ms", "60001", "group.share.max.record.lock.duration.ms"),
        ("share.record.lock.duration.ms", "999", "at least 1000"),
        ("share.session.timeout.ms", "44999", "group.share.min.session.timeout.ms"),
        ("share.heartbeat.interval.ms", "4999", "group.share.min.heartbeat.interval.ms"),
        ("share.delivery.count.limit", "11", "group.share.max.delivery.count.limit"),
        ("share.delivery.count.limit", "1", "at least 2"),
        ("share.partition.max.record.locks", "4001", "group.share.max.partition.max.record.locks"),
        ("share.assignment.interval.ms", "-1", "at least 0"),
        ("share.assignment.interval.ms", "15001", "group.share.max.assignment.interval.ms"),
        ("share.session.timeout.ms", "soon", "Not a number of type INT"),
        ("share.session.timeout.ms", "2147483648", "Not a number of type INT"),
        ("share.session.timeout.ms", "1_000", "Not a number of type INT"),
        ("share.auto.offset.reset", "by_duration:-PT1H", "by_duration"),
        ("share.auto.offset.reset", "by_duration", "by_duration"),
        ("share.auto.offset.reset", "none", "earliest"),
        ("share.isolation.level", "READ_COMMITTED", "read_committed, read_uncommitted"),
        ("share.renew.acknowledge.enable", "yes", "either true or false"),
        ("share.unheard.of", "1", "Unknown group config name: share.unheard.of"),
    ],
)
def test_values_a_group_may_not_have(name, value, words):
    """Item 107 and the rules of KIP-1240: each refusal says what would do."""
    assert words in check_stored({name: value}, LIMITS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.record.lock.duration.ms", "15000"),
        ("share.record.lock.duration.ms", " 60000 "),
        ("share.assignment.interval.ms", "0"),
        ("share.auto.offset.reset", "by_duration:PT1H"),
        ("share.auto.offset.reset", "earliest"),
        ("share.isolation.level", "read_committed"),
        ("share.renew.acknowledge.enable", "FALSE"),
    ],
)
def test_values_a_group_may_have(name, value):
    """Bounds are part of what is allowed; blanks around a value do not count."""
    assert check_stored({name: value}, LIMITS) is None
    assert effective({name: value}, LIMITS)


def test_a_session_must_be_longer_than_a_heartbeat_interval():
    """Judged by what the group would have after the change, defaults included."""
    limits = BrokerShareLimits.check(
        {"group.share.min.session.timeout.ms": 6000, "group.share.max.heartbeat.interval.ms": 20_000}
    )
    assert check_stored({"share.session.timeout.ms": "6000"}, limits) is None
    stored = {"share.heartbeat.interval.ms": "8000"}
    assert "must be greater than" in check_stored({**stored, "share.session.timeout.ms": "8000"}, limits)
    assert check_stored({**stored, "share.session.timeout.ms": "8001"}, limits) is None


def test_stored_values_are_clamped_when_the_bounds_have_moved():
    """Kafka 4.3 (KIP-1240): what was allowed once is capped, not refused."""
    wide = BrokerShareLimits.check({"group.share.min.record.lock.duration.ms": 1000})
    stored = {"share.record.lock.duration.ms": "2000", "share.delivery.count.limit": "10"}
    assert check_stored(stored, wide) is None
    narrow = BrokerShareLimits.check({"group.share.max.delivery.count.limit": 7})
    assert effective(stored, wide).lock_duration_s == 2.0
    assert effective(stored, narrow).lock_duration_s == 15.0
    assert effective(stored, narrow).delivery_count_limit == 7


def test_stored_values_take_effect():
    """Every setting arrives where the machines look for it."""
    settings = effective(
        {
            "share.record.lock.duration.ms": "20000",
            "share.session.timeout.ms": "50000",
            "share.heartbeat.interval.ms": "6000",
            "share.auto.offset.reset": "by_duration:PT1H",
            "share.isolation.level": "read_committed",
            "share.delivery.count.limit": "3",
            "share.partition.max.record.locks": "500",
            "share.renew.acknowledge.enable": "false",
            "share.assignment.interval.ms": "0",
        },
        LIMITS,
    )
    assert settings == module.GroupSettings(
        lock_duration_s=20.0,
        session_timeout_s=50.0,
        heartbeat_interval_s=6.0,
        offset_reset=OffsetReset(ResetKind.BY_DURATION, 3_600_000),
        read_committed=True,
        delivery_count_limit=3,
        max_record_locks=500,
        renew_enabled=False,
        assignment_interval_s=0.0,
    )


def test_every_group_setting_is_described():
    """Names sorted, a sentence each, and bounds where a broker setting gives them."""
    assert [key.name for key in GROUP_CONFIGS] == sorted(key.name for key in GROUP_CONFIGS)
    for key in GROUP_CONFIGS:
        assert key.documentation.endswith(".")
        assert check_stored({key.name: key.default_value(LIMITS)}, LIMITS) is None
        if key.synonym is None:
            with pytest.raises(KeyError):
                key.bounds(LIMITS)
        else:
            low, high = key.bounds(LIMITS)
            assert low <= int(key.default_value(LIMITS)) <= high
