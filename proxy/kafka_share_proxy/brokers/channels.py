"""Channels to brokers by node id, opened on demand and reopened after a loss."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import NamedTuple

import trio

from kafka_share_proxy.brokers.channel import Channel, open_channel
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.brokers.replaced import SILENT_S
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.lasting_trouble import LastingTrouble
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.wire.errors import ProxyError
from kafka_share_proxy.wire.values import Address

RETRY_MIN_S, RETRY_MAX_S = 0.05, 0.5
"""Shortest and longest delay in seconds after a failed attempt. A crashed broker remains leader until it is missed."""


class ChannelKey(NamedTuple):
    """Key of a channel. Requests that must not wait for each other have different purposes."""

    node_id: int
    purpose: str


class _Failures(NamedTuple):
    """Consecutive failed attempts to connect to one broker."""

    number: int
    again_at: float


class BrokerChannels:
    """Open channels. They are dialled while `run` is active."""

    def __init__(
        self,
        reactor: Reactor,
        settings: ClusterClientSettings,
        notes: Notes,
        *,
        on_changed: Callable[[], None],
        on_unreachable: Callable[[int], None],
    ) -> None:
        """`on_changed`: called when a channel has opened or closed.

        `on_unreachable`: called with a node that could not be reached. Another broker may have its partitions by now.
        """
        self.addresses: dict[int, Address] = {}
        """Addresses by node id, kept up to date by the caller."""
        self._on_changed = on_changed
        self._on_unreachable = on_unreachable
        self._to_dial, self._dials = trio.open_memory_channel[ChannelKey](inf)
        """Dials that wait, at most one for each key, and all dials in progress: see `_opening`."""
        self._reactor = reactor
        self._settings = settings
        self._notes = notes
        self._open: dict[ChannelKey, Channel] = {}
        self._opening: dict[ChannelKey, float] = {}
        self._failures: dict[ChannelKey, _Failures] = {}
        self._troubles: dict[int, LastingTrouble] = {}
        """Trouble by node id, for all its channels."""

    async def run(self) -> None:
        """Dial channels as they are needed, until cancelled. The caller then calls `close`."""
        async with trio.open_nursery() as nursery:
            async for key in self._dials:
                nursery.start_soon(self._dial, key, name="link")

    def get(self, node_id: int, purpose: str) -> Channel | None:
        key = ChannelKey(node_id, purpose)
        channel = self._open.get(key)
        if channel is not None and (channel.expires == inf or channel.waiting or trio.current_time() < channel.expires):
            return channel
        if channel is not None:
            channel.close("the session ends")
        if key not in self._opening:
            self._opening[key] = trio.current_time()
            self._to_dial.send_nowait(key)
        return None

    def is_late(self, node_id: int, purpose: str) -> bool:
        """True if a response, or the channel itself, is overdue."""
        key = ChannelKey(node_id, purpose)
        channel = self._open.get(key)
        if channel is not None:
            return self._reactor.now() - channel.waiting_since >= SILENT_S
        return key in self._failures or trio.current_time() - self._opening.get(key, inf) >= SILENT_S

    def give_up(self, node_id: int, purpose: str, reason: str) -> None:
        channel = self._open.get(ChannelKey(node_id, purpose))
        if channel is not None:
            channel.close(reason)

    def close(self) -> None:
        for channel in list(self._open.values()):
            channel.close("closed here")

    async def _dial(self, key: ChannelKey) -> None:
        failures = self._failures.get(key)
        if failures is not None:
            await trio.sleep_until(failures.again_at)
        try:
            address = self.addresses.get(key.node_id)
            if address is None:
                self._failed(key)
                return
            channel = await open_channel(self._reactor, address, self._settings, partial(self._closed, key))
        except ProxyError as error:
            self._trouble(key.node_id).happened(str(error))
            self._failed(key)
        else:
            self._trouble(key.node_id).ended()
            self._failures.pop(key, None)
            self._open[key] = channel
        finally:
            del self._opening[key]
            self._on_changed()

    def _trouble(self, node_id: int) -> LastingTrouble:
        if node_id not in self._troubles:
            events = ("state-link-failed", "state-link-made")
            self._troubles[node_id] = LastingTrouble(self._notes, *events, node_id=node_id)
        return self._troubles[node_id]

    def _failed(self, key: ChannelKey) -> None:
        now, before = trio.current_time(), self._failures.get(key)
        earlier = before.number if before is not None and now < before.again_at + RETRY_MAX_S else 0
        pause_s = min(RETRY_MIN_S * 2 ** min(earlier, 10), RETRY_MAX_S)
        self._failures[key] = _Failures(earlier + 1, now + pause_s)
        self._on_unreachable(key.node_id)

    def _closed(self, key: ChannelKey, channel: Channel, reason: str, in_flight: int) -> None:
        if self._open.get(key) is not channel:
            return
        del self._open[key]
        if in_flight:
            self._notes("state-link-lost", node_id=key.node_id, reason=reason, unanswered_requests=in_flight)
        else:  # brokers close idle connections after connections.max.idle.ms; the next request dials again
            self._notes("state-link-closed-idle", node_id=key.node_id, reason=reason)
        self._on_changed()
