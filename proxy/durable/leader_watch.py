"""Where the partitions of a state's topic are led: looked up whenever somebody misses one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from math import inf

import trio

from proxy.brokers.internal_topics import TopicLeaders
from proxy.brokers.own_connection import OwnSettings
from proxy.durable.replay import ReplayPlace
from proxy.durable.state_topic import StateTopic
from proxy.loop.interfaces import Notes
from proxy.loop.lasting_trouble import LastingTrouble
from proxy.wire.errors import ProxyError

PAUSE_S = 0.1
"""Between two looks."""
PATIENCE_S = 3.0
"""Trouble that is over so soon, as it is while a topic is made or a leader moves, is not told."""


class LeaderWatch:
    """Looks while `run` does; `view` is what was seen last."""

    def __init__(
        self, topic: str, partitions: int, settings: OwnSettings, notes: Notes, *, look_s: float = inf
    ) -> None:
        """`look_s`: it looks at least this often, whether or not anybody misses something."""
        self.view = TopicLeaders(partitions, {}, {})
        self.on_seen: Callable[[TopicLeaders], None] = lambda _view: None
        """Called with each view of a topic that exists."""
        self.on_missing: Callable[[], None] = lambda: None
        """Called when the topic does not exist."""
        self.on_trouble: Callable[[ProxyError], None] = lambda _error: None
        self.on_looked: Callable[[], None] = lambda: None
        """Called after each look, whatever came of it."""
        self._topic = topic
        self._settings = settings
        self._look_s = look_s
        self._wanted = trio.Event()
        self._looked = trio.Event()
        self._trouble = LastingTrouble(
            notes, "state-view-failed", "state-view-found", patience_s=PATIENCE_S, topic=topic
        )

    @property
    def place(self) -> ReplayPlace:
        """Where to read, as far as is known."""
        return ReplayPlace(self._topic, self.view.leaders, self.view.addresses, self._settings, self.view.topic_id)

    def learn(self, view: TopicLeaders) -> None:
        """Somebody else has looked."""
        self.view = view

    def look_soon(self) -> None:
        """A leader is missing, or another one than was believed."""
        self._wanted.set()

    async def look(self) -> None:
        """Wait for the next look."""
        looked = self._looked
        self._wanted.set()
        await looked.wait()

    async def is_led_elsewhere(self, leaders: Mapping[int, int]) -> bool:
        """Look whether any of these partitions has another leader than this (partition -> node id)."""
        await self.look()
        now = self.view.leaders
        return any(now.get(partition, node_id) != node_id for partition, node_id in leaders.items())

    async def run(self, topic: StateTopic, also: Callable[[StateTopic], Awaitable[None]] | None = None) -> None:
        """Look when it is wanted, and now and then, until cancelled; `also`: what else is asked with each look.

        Closes the topic.
        """
        try:
            while True:
                with trio.move_on_after(self._look_s):
                    await self._wanted.wait()
                self._wanted = trio.Event()
                try:
                    await self._look(topic)
                    if also is not None:
                        await also(topic)
                except ProxyError as error:
                    self._trouble.happened(str(error))
                    self.on_trouble(error)
                else:
                    self._trouble.ended()
                self.on_looked()
                looked, self._looked = self._looked, trio.Event()
                looked.set()
                await trio.sleep(PAUSE_S)
        finally:
            await topic.aclose()

    async def _look(self, topic: StateTopic) -> None:
        view = await topic.leaders()
        if view is None:
            self.on_missing()
        else:
            self.view = view
            self.on_seen(view)
