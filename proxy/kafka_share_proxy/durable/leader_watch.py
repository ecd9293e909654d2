"""Lookup of the leaders of a state topic's partitions, whenever a caller misses one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from math import inf

import trio

from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.brokers.internal_topics import TopicLeaders
from kafka_share_proxy.durable.replay import ReplaySource
from kafka_share_proxy.durable.state_topic import StateTopic
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.lasting_trouble import LastingTrouble
from kafka_share_proxy.wire.errors import ProxyError

PAUSE_S = 0.1
"""Seconds between two lookups."""
PATIENCE_S = 3.0
"""Seconds of trouble that are not logged, as while a topic is created or a leader moves."""


class LeaderWatch:
    """Repeated lookup of the leaders of one topic. `view`: the last result."""

    def __init__(
        self,
        topic: str,
        partitions: int,
        settings: ClusterClientSettings,
        notes: Notes,
        *,
        check_s: float = inf,
        on_leaders: Callable[[TopicLeaders], None] = lambda _view: None,
        on_missing: Callable[[], None] = lambda: None,
        on_trouble: Callable[[ProxyError], None] = lambda _error: None,
        on_refreshed: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            topic: name of the topic.
            partitions: number of its partitions.
            settings: of the connections that read.
            notes: receiver of log events.
            check_s: maximum seconds between two lookups, even if no caller requests one.
            on_leaders: called with the leaders of a topic that exists.
            on_missing: called when the topic does not exist.
            on_trouble: called with the error of a lookup.
            on_refreshed: called after each lookup, even a failed one.
        """
        self.view = TopicLeaders(partitions, {}, {})
        self._on_leaders = on_leaders
        self._on_missing = on_missing
        self._on_trouble = on_trouble
        self._on_refreshed = on_refreshed
        self._topic = topic
        self._settings = settings
        self._check_s = check_s
        self._requested = trio.Event()
        self._refreshed = trio.Event()
        self._trouble = LastingTrouble(
            notes, "state-view-failed", "state-view-found", patience_s=PATIENCE_S, topic=topic
        )

    @property
    def source(self) -> ReplaySource:
        return ReplaySource(self._topic, self.view.leaders, self.view.addresses, self._settings, self.view.topic_id)

    def learn(self, view: TopicLeaders) -> None:
        """Use the result of a lookup that another task has made."""
        self.view = view

    def check_soon(self) -> None:
        """Request a lookup, PAUSE_S after the last one at the earliest."""
        self._requested.set()

    async def refresh(self) -> None:
        """Request a lookup, and wait until it has ended, even if it failed."""
        refreshed = self._refreshed
        self._requested.set()
        await refreshed.wait()

    async def is_led_elsewhere(self, leaders: Mapping[int, int]) -> bool:
        """True if any partition has another leader than in `leaders`."""
        await self.refresh()
        now = self.view.leaders
        return any(now.get(partition, node_id) != node_id for partition, node_id in leaders.items())

    async def run(self, topic: StateTopic, also: Callable[[StateTopic], Awaitable[None]] | None = None) -> None:
        """Look up when requested, and periodically. `also` is called each time.

        Closes the topic.
        """
        earliest = -inf
        try:
            while True:
                with trio.move_on_after(self._check_s):
                    await self._requested.wait()
                if trio.current_time() < earliest:
                    await trio.sleep_until(earliest)
                self._requested = trio.Event()
                try:
                    await self._refresh(topic)
                    if also is not None:
                        await also(topic)
                except ProxyError as error:
                    self._trouble.happened(str(error))
                    self._on_trouble(error)
                else:
                    self._trouble.ended()
                self._on_refreshed()
                refreshed, self._refreshed = self._refreshed, trio.Event()
                refreshed.set()
                earliest = trio.current_time() + PAUSE_S
        finally:
            await topic.aclose()

    async def _refresh(self, topic: StateTopic) -> None:
        view = await topic.leaders(may_have_grown=True)
        if view is None:
            self._on_missing()
        else:
            self.view = view
            self._on_leaders(view)
