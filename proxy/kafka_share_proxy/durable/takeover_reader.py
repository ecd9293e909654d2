"""Reader of the logs of partitions that are taken over (durable/README.md rules 15 to 17 and 49).

What a log has is read while the brokers store the takeover record, on connections that are kept for all parts of the
takeover. Once the record is stored, one Fetch remains.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Any, TypeVar

import trio

from kafka_share_proxy.brokers.cluster_connection import AuthenticationFailed, ClusterClientSettings
from kafka_share_proxy.brokers.idle_connections import IdleConnections
from kafka_share_proxy.brokers.replaced import SILENT_S, unless_replaced
from kafka_share_proxy.durable import replay
from kafka_share_proxy.durable.described_state import DescribedState
from kafka_share_proxy.durable.leader_watch import LeaderWatch
from kafka_share_proxy.durable.ownership import Takeover
from kafka_share_proxy.durable.partition_log import ENDLESS
from kafka_share_proxy.durable.replay import ReplaySource
from kafka_share_proxy.wire.errors import ProxyError, RemoteProtocolError, UpstreamLost

T = TypeVar("T")

RETRY_MIN_S, RETRY_MAX_S = 0.1, 5.0
"""Shortest and longest delay in seconds after a failed attempt."""


class TakeoverReader:
    """Reader of one takeover, which fills its `replays`. `aclose` closes the connections."""

    def __init__(
        self,
        takeover: Takeover,
        leaders: LeaderWatch,
        settings: ClusterClientSettings,
        state: DescribedState[Any],
        on_trouble: Callable[[ProxyError, Iterable[int]], None],
        on_unreadable: Callable[[int, RemoteProtocolError], None],
    ) -> None:
        """
        Args:
            takeover: partitions to read.
            leaders: lookup of their leaders.
            settings: of the connections.
            state: their state.
            on_trouble: called with an error that is retried, and the partitions that wait.
            on_unreadable: called with a partition that has an unknown record or batch, and is left out.
        """
        self._takeover = takeover
        self._leaders = leaders
        self._state = state
        self._on_trouble = on_trouble
        self._on_unreadable = on_unreadable
        self._connections = IdleConnections(settings)

    async def aclose(self) -> None:
        await self._connections.aclose()

    async def read_ahead(self) -> None:
        """Read what the logs of the present part have now. `read` repeats it if it fails."""
        replays = self._takeover.replays = {p: self._state.replay(ENDLESS) for p in self._takeover.current}
        try:
            await self._unless_moved(lambda: replay.read_ahead(replays, self._source))
        except ProxyError:
            return

    async def read(self) -> None:
        """Read up to the takeover records, until it succeeds. An unreadable partition is left out."""
        takeover = self._takeover
        takeover.replays = {p: takeover.replays[p].ending(outcome.offset) for p, outcome in takeover.taken_over.items()}
        await self._until_done(self._read)

    async def had_owner(self, partitions: Collection[int]) -> bool:
        """Return True if a proxy has owned one of the partitions, or its log cannot be read."""
        return await self._until_done(lambda: replay.had_owner(partitions, self._source, self._state.replay))

    @property
    def _source(self) -> ReplaySource:
        return self._leaders.source._replace(idle=self._connections)

    async def _read(self) -> None:
        try:
            await replay.read(self._takeover.replays, self._source)
        except RemoteProtocolError as error:
            await self._read_each(error)

    async def _read_each(self, error: RemoteProtocolError) -> None:
        is_found = False
        for partition, each in list(self._takeover.replays.items()):
            try:
                await replay.read({partition: each}, self._source)
            except RemoteProtocolError as own_error:
                self._on_unreadable(partition, own_error)
                is_found = True
        if not is_found:
            raise error

    async def _until_done(self, attempt: Callable[[], Awaitable[T]]) -> T:
        delay = RETRY_MIN_S
        while True:
            try:
                return await self._unless_moved(attempt)
            except (UpstreamLost, AuthenticationFailed) as error:
                self._on_trouble(error, self._takeover.partitions)
            await self._leaders.refresh()
            await trio.sleep(delay)
            delay = min(2 * delay, RETRY_MAX_S)

    async def _unless_moved(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return the result of an attempt. Raises UpstreamLost if another broker leads a partition meanwhile."""
        led = {p: node for p, node in self._leaders.view.leaders.items() if p in self._takeover.partitions}
        return await unless_replaced(attempt, partial(self._leaders.is_led_elsewhere, led), check_s=SILENT_S)
