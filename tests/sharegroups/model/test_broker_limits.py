"""The broker's settings of share groups: defaults, bounds, and all mistakes together."""

from __future__ import annotations

import pytest
from kafka_share_proxy.sharegroups.model.broker_limits import BrokerShareLimits, InvalidShareLimits, broker_names

LIMITS = BrokerShareLimits()


def test_the_defaults_stand_together():
    """Kafka's defaults pass Kafka's own checks."""
    names = broker_names()
    assert BrokerShareLimits.check({name: LIMITS.value(name) for name in names}) == LIMITS
    assert all(name.startswith("group.share.") for name in names)


def test_broker_settings_are_read_from_text_and_numbers():
    """A YAML file has numbers, the environment has text."""
    limits = BrokerShareLimits.check(
        {
            "group.share.min.record.lock.duration.ms": "1000",
            "group.share.max.size": 2,
            "group.share.assignors": "simple",
        }
    )
    assert limits.group_share_min_record_lock_duration_ms == 1000
    assert limits.group_share_max_size == 2


def test_all_mistakes_are_named_together():
    """Unknown names, values that are no numbers, values out of bounds and foreign assignors come in one error."""
    with pytest.raises(InvalidShareLimits) as raised:
        BrokerShareLimits.check(
            {
                "group.share.max.siez": 1,
                "group.share.max.size": 1001,
                "group.share.record.lock.duration.ms": "soon",
                "group.share.session.timeout.ms": True,
                "group.share.assignors": "uniform",
            }
        )
    lines = str(raised.value).splitlines()
    assert len(lines) == 5
    for name in ("siez", "max.size: 1001", "soon", "session.timeout.ms", "uniform"):
        assert any(name in line for line in lines)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"group.share.record.lock.duration.ms": 1000}, "group.share.min.record.lock.duration.ms"),
        ({"group.share.record.lock.duration.ms": 90_000}, "group.share.max.record.lock.duration.ms"),
        ({"group.share.session.timeout.ms": 6000}, "group.share.min.session.timeout.ms"),
        ({"group.share.heartbeat.interval.ms": 45_000}, "group.share.max.heartbeat.interval.ms"),
        (
            {"group.share.heartbeat.interval.ms": 45_000, "group.share.max.heartbeat.interval.ms": 60_000},
            "must be less than group.share.session.timeout.ms",
        ),
        ({"group.share.max.share.sessions": 199}, "group.share.max.share.sessions"),
        ({"group.share.partition.max.record.locks": 4001}, "group.share.max.partition.max.record.locks"),
        ({"group.share.assignment.interval.ms": 15_001}, "group.share.max.assignment.interval.ms"),
        ({"group.share.max.delivery.count.limit": 5, "group.share.delivery.count.limit": 6}, "max.delivery.count"),
    ],
)
def test_broker_settings_that_contradict_each_other(values, name):
    """A broker would not start with them."""
    with pytest.raises(InvalidShareLimits, match=name):
        BrokerShareLimits.check(values)
