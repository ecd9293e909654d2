"""A group that is handed over acquires less: first nothing new, then nothing at all."""

from __future__ import annotations

from kafka_share_proxy.sharegroups.model.coordinator import ShareCoordinator
from kafka_share_proxy.sharegroups.model.settings import (
    NOTHING_ACQUIRED,
    WINDOW_CLOSED,
    BrokerShareLimits,
    without_counterpart,
)


def test_limit_holds_over_changed_settings_until_it_is_lifted():
    coordinator = ShareCoordinator(BrokerShareLimits())
    as_set = coordinator.settings("g").max_record_locks
    for limit in (WINDOW_CLOSED, NOTHING_ACQUIRED):
        coordinator.hold_back("g", limit)
        assert coordinator.settings("g").max_record_locks == limit
        coordinator.store_settings("g", {"share.delivery.count.limit": "7"})
        settings = coordinator.settings("g")
        assert (settings.max_record_locks, settings.delivery_count_limit) == (limit, 7)
        coordinator.store_settings("g", {})
        assert coordinator.settings("other").max_record_locks == as_set
    coordinator.hold_back("g", None)
    assert coordinator.settings("g").max_record_locks == as_set


def test_only_settings_with_an_effect_that_no_release_of_kafka_has_are_named():
    stored = {"share.ordering": "key", "share.redelivery.delay.ms": "0", "share.isolation.level": "read_committed"}
    assert without_counterpart(stored) == ["share.ordering"]
    assert without_counterpart(stored, all_=True) == ["share.ordering", "share.redelivery.delay.ms"]
