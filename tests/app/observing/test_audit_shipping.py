"""Transport of audit events from the queue to the sinks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import trio
import trio.testing
from kafka_share_proxy.app.observing import audit_shipping as shipping
from kafka_share_proxy.app.observing.audit_shipping import AuditShipping
from kafka_share_proxy.audit.events import Place
from kafka_share_proxy.audit.stream import Audit

from tests.support.manual_timers import ManualTimers

PLACE = Place(b"t" * 16, 0)


class Kept:
    """A sink that keeps what it gets; it may be slow for ever."""

    name = "kept"

    def __init__(self, *, stuck: bool = False) -> None:
        self.lines: list[dict] = []
        self.dropped = 0
        self._stuck = stuck

    def offer(self, lines) -> None:
        self.lines += map(json.loads, lines)

    async def run(self) -> None:
        await trio.sleep_forever()

    async def written(self) -> None:
        if self._stuck:
            await trio.sleep_forever()


class Decoded:
    """Topics are called as their ids read."""

    def __init__(self) -> None:
        self.learnt: list[bytes] = []
        self.is_closed = False

    def name(self, topic_id: bytes) -> str:
        return topic_id.decode()

    def unknown(self, topic_ids) -> list[bytes]:
        return [topic_id for topic_id in topic_ids if topic_id not in self.learnt]

    async def learn(self, topic_ids) -> None:
        await trio.sleep(0.1)
        self.learnt += topic_ids

    async def aclose(self) -> None:
        self.is_closed = True


class TrioTimers(ManualTimers):
    """The virtual clock."""

    def now(self) -> float:
        return trio.current_time()

    def call_at(self, deadline: float, callback: Callable[[], None]) -> Any:
        scope = trio.CancelScope()

        async def ring() -> None:
            with scope:
                await trio.sleep_until(deadline)
                callback()

        trio.lowlevel.spawn_system_task(ring)
        return scope


def shipped(*sinks: Kept) -> AuditShipping:
    audit = Audit(TrioTimers(), 10_000)
    return AuditShipping(audit, sinks, "p", lambda: "c", Decoded(), TrioTimers())


def offer_events(way: AuditShipping, count: int = 1) -> None:
    for _ in range(count):
        way.audit.offer("acquire", PLACE, "g", "m", (0, 9, 1, 100, 30000, "proxy"))
        way.audit.loads.of(PLACE).rows += 10


async def running(way: AuditShipping, seconds: float) -> None:
    with trio.move_on_after(seconds):
        await way.run()


async def test_every_sink_gets_every_event_in_order(autojump_clock: trio.testing.MockClock) -> None:
    first, second = Kept(), Kept()
    way = shipped(first, second)
    offer_events(way, 2 * shipping.SLICE + 1)
    await running(way, 1)
    assert [line["seq"] for line in first.lines] == list(range(1, 2 * shipping.SLICE + 2))
    assert second.lines == first.lines
    assert (first.lines[0]["topic"], first.lines[0]["cluster"], first.lines[0]["proxy_id"]) == ("t" * 16, "c", "p")


async def test_topics_are_requested_before_their_events_are_written(autojump_clock: trio.testing.MockClock) -> None:
    """The connection used for the lookup is closed at the end."""
    sink = Kept()
    way = shipped(sink)
    offer_events(way)
    way.audit.report_coverage("views", "all", "events of no topic")
    await running(way, 1)
    assert (way._names.learnt, way._names.is_closed, len(sink.lines)) == ([b"t" * 16], True, 2)


async def test_nothing_overtakes_events_of_a_topic_that_is_requested(autojump_clock: trio.testing.MockClock) -> None:
    """Events that arrive in the meantime are not lost."""
    sink = Kept()
    way = shipped(sink)
    offer_events(way)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(way.run)
        await trio.sleep(0.05)
        way.audit.report_coverage("views", "all", "events of no topic")
        assert sink.lines == []
        await trio.sleep(shipping.POLL_S)
        nursery.cancel_scope.cancel()
    assert [line["kind"] for line in sink.lines] == ["acquire", "scope"]


async def test_load_is_reported_every_interval(autojump_clock: trio.testing.MockClock) -> None:
    sink = Kept()
    way = shipped(sink)
    offer_events(way)
    await running(way, 61)
    assert [line["kind"] for line in sink.lines] == ["acquire", "load"]


async def test_the_last_events_go_out_at_the_end(autojump_clock: trio.testing.MockClock) -> None:
    """With the load up to then; a sink that does not come to an end is not waited for without end."""
    sink, stuck = Kept(), Kept(stuck=True)
    way = shipped(sink, stuck)
    offer_events(way)
    began = trio.current_time()
    await way.finish()
    assert [line["kind"] for line in sink.lines] == ["acquire", "load"]
    assert trio.current_time() - began == shipping.FINISH_S


async def test_losses_are_reported_by_place() -> None:
    sink = Kept()
    way = shipped(sink)
    sink.dropped = 3
    assert way.dropped() == {"queue": 0, "kept": 3}
