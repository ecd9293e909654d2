"""Clients choose how long their requests wait; the loop must not pay for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop import reactor as reactors
from kafka_share_proxy.loop.reactor import Reactor

DAYS_S = 24 * 86_400.0
"""The longest MaxWaitMs: 2**31 - 1."""


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    new_reactor = Reactor(new_pump)
    yield new_reactor
    new_reactor.shut()


def test_alarms_cancelled_long_before_their_time_are_not_kept(reactor: Reactor) -> None:
    """Otherwise each ShareFetch with a long MaxWaitMs would occupy memory for days after its response."""
    for _ in range(50 * reactors.ALARMS_CROWDED):
        reactor.call_at(reactor.now() + DAYS_S, lambda: None).cancel()
    assert len(reactor._alarms) <= reactors.ALARMS_CROWDED


def test_alarms_that_still_count_ring_in_order_after_others_were_forgotten(reactor: Reactor) -> None:
    rung: list[int] = []
    now = reactor.now()
    alarm_count = 2 * reactors.ALARMS_CROWDED
    for number in range(alarm_count):
        reactor.call_at(now - 1 / (number + 1), lambda number=number: rung.append(number))  # type: ignore[misc]
        reactor.call_at(now + DAYS_S, lambda: None).cancel()
    reactor.iterate(0)
    assert rung == list(range(alarm_count))


def test_a_set_alarm_may_evict_others(reactor: Reactor) -> None:
    rung: list[str] = []
    now = reactor.now()

    def first() -> None:
        for _ in range(3 * reactors.ALARMS_CROWDED):
            reactor.call_at(now + DAYS_S, lambda: None).cancel()
        rung.append("first")

    reactor.call_at(now - 2, first)
    reactor.call_at(now - 1, lambda: rung.append("second"))
    reactor.iterate(0)
    assert rung == ["first", "second"]
