"""Waiting for a broker that may be lost without a word."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
from kafka_share_proxy.brokers.replaced import CHECK_S, SILENT_S, Replaced, ResponseDue, unless_replaced
from kafka_share_proxy.wire.errors import UpstreamLost
from trio.testing import MockClock


class Place:
    """Work that another broker takes over at some time."""

    def __init__(self, moves_at: float) -> None:
        self.moves_at = trio.current_time() + moves_at
        self.looks: list[float] = []
        self.is_unknown = False

    async def is_replaced(self) -> bool:
        await trio.lowlevel.checkpoint()
        self.looks.append(trio.current_time())
        if self.is_unknown:
            raise UpstreamLost("nobody can tell")
        return trio.current_time() >= self.moves_at


async def respond_after(seconds: float) -> str:
    await trio.sleep(seconds)
    return "answer"


async def test_response_in_time_needs_no_lookup(autojump_clock: MockClock) -> None:
    place = Place(0.0)
    assert await unless_replaced(lambda: respond_after(0.9 * SILENT_S), place.is_replaced) == "answer"
    assert place.looks == []


async def test_slow_broker_without_a_replacement_is_waited_for(autojump_clock: MockClock) -> None:
    place = Place(1000.0)
    assert await unless_replaced(lambda: respond_after(10.0), place.is_replaced) == "answer"
    assert len(place.looks) <= 10.0 / CHECK_S


async def test_broker_that_was_replaced_is_not_waited_for(autojump_clock: MockClock) -> None:
    place, began = Place(9.0), trio.current_time()
    with pytest.raises(Replaced):
        await unless_replaced(lambda: respond_after(60.0), place.is_replaced)
    assert trio.current_time() - began == pytest.approx(9.0, abs=2 * CHECK_S)


async def test_silence_counts_from_the_request_in_flight(autojump_clock: MockClock) -> None:
    """One watch serves many requests, and begins to query brokers when one of them is late."""
    place, began = Place(0.0), trio.current_time()
    due = ResponseDue(began)

    async def requests() -> None:
        for _ in range(5):
            due.move(trio.current_time() + 3.0)
            await trio.sleep(3.0)
        await trio.sleep(60.0)

    with pytest.raises(Replaced):
        await unless_replaced(requests, place.is_replaced, due=due)
    assert place.looks == [pytest.approx(began + 15.0 + SILENT_S)]


async def test_responses_in_time_wake_no_task_of_the_watch(autojump_clock: MockClock) -> None:
    """Each wake-up of an idle proxy costs about 100,000 instructions."""
    due, steps = ResponseDue(trio.current_time()), Counter[str]()

    class Steps(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            steps[task.name] += 1

    async def responses() -> None:
        for _ in range(100):
            due.move(trio.current_time() + 3.0)
            await trio.sleep(3.0)

    instrument = Steps()
    trio.lowlevel.add_instrument(instrument)
    await unless_replaced(responses, Place(0.0).is_replaced, due=due)
    trio.lowlevel.remove_instrument(instrument)
    watched = {name: count for name, count in steps.items() if name.endswith("watch")}
    assert len(watched) == 1
    assert sum(watched.values()) <= 2


async def test_a_refresh_that_fails_replaces_nothing(autojump_clock: MockClock) -> None:
    place = Place(0.0)
    place.is_unknown = True
    assert await unless_replaced(lambda: respond_after(5.0), place.is_replaced) == "answer"


async def test_error_of_the_broker_goes_through(autojump_clock: MockClock) -> None:
    async def fail() -> None:
        raise UpstreamLost("cut")

    with pytest.raises(UpstreamLost, match="cut"):
        await unless_replaced(fail, Place(0.0).is_replaced)
