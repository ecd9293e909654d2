"""Pauses between heartbeats in the group of proxies (durable/README.md rule 50)."""

from __future__ import annotations

import trio
from kafka_share_proxy.durable.heartbeat_pace import CHANGING_SESSIONS, MOVING_PAUSE_S, MOVING_S, HeartbeatPace
from trio.testing import MockClock

SESSION_S = 6.0


async def test_a_single_proxy_sends_four_heartbeats_in_a_session(autojump_clock: MockClock) -> None:
    pace = HeartbeatPace(SESSION_S, in_fleet=False)
    assert pace.pause_s == pace.rejoining_pause_s == 1.5
    pace.changed(is_moving=True)
    assert pace.pause_s == 1.5


async def test_a_fleet_that_does_not_change_sends_a_quarter_of_the_heartbeats(autojump_clock: MockClock) -> None:
    pace = HeartbeatPace(SESSION_S, in_fleet=True)
    assert pace.pause_s == 1.0
    pace.changed(is_moving=False)
    assert pace.pause_s == pace.rejoining_pause_s == 0.25
    await trio.sleep(CHANGING_SESSIONS * SESSION_S)
    assert pace.pause_s == 1.0


async def test_heartbeats_are_most_frequent_until_every_partition_has_an_owner(autojump_clock: MockClock) -> None:
    pace = HeartbeatPace(SESSION_S, in_fleet=True)
    pace.changed(is_moving=True)
    assert pace.pause_s == MOVING_PAUSE_S
    await trio.sleep(MOVING_S)
    assert pace.pause_s == 0.25, "the other members do not give them up"
    pace.changed(is_moving=True)
    pace.changed(is_moving=False)
    assert pace.pause_s == 0.25


async def test_a_link_lost_during_a_heartbeat_ends_the_pause_after_it(autojump_clock: MockClock) -> None:
    pace = HeartbeatPace(SESSION_S, in_fleet=True)
    await pace.wait(pace.pause_s)
    pace.expect_change()
    began = trio.current_time()
    await pace.wait(pace.pause_s)
    assert trio.current_time() == began
    await pace.wait(pace.pause_s)
    assert trio.current_time() - began == 0.25, "it ends one pause"


async def test_a_lost_link_ends_the_pause(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    pace = HeartbeatPace(SESSION_S, in_fleet=True)
    began = trio.current_time()
    await pace.wait(pace.pause_s)
    assert trio.current_time() - began == 1.0

    async def lose_a_link() -> None:
        await trio.sleep(0.1)
        pace.expect_change()

    nursery.start_soon(lose_a_link)
    began = trio.current_time()
    await pace.wait(pace.pause_s)
    assert trio.current_time() - began < 0.11
    assert pace.pause_s == 0.25
