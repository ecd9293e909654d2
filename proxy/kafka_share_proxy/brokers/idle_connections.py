"""Connections to several brokers, each opened at its first use and kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import NamedTuple

import trio

from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings, ClusterConnection, open_connection
from kafka_share_proxy.wire.values import Address


class _Idle(NamedTuple):
    """Connection that no task uses since a time (trio.current_time())."""

    opened: ClusterConnection
    since: float


class IdleConnections:
    """Idle connections to brokers, at most one to each. A concurrent task gets a new one."""

    def __init__(self, settings: ClusterClientSettings, idle_s: float = inf) -> None:
        """`idle_s`: seconds after which an idle connection is no longer used, because it may be lost unnoticed."""
        self._settings = settings
        self._idle_s = idle_s
        self._idle: dict[Address, _Idle] = {}
        self._is_closed = False

    @asynccontextmanager
    async def lend(self, address: Address) -> AsyncIterator[ClusterConnection]:
        """Yield a connection that no other task uses. An error of the block closes it, since a response may be due.

        Raises as `open_connection`.
        """
        idle = self._idle.pop(address, None)
        if idle is not None and trio.current_time() < min(idle.opened.expires, idle.since + self._idle_s):
            opened = idle.opened
        else:
            if idle is not None:
                await idle.opened.aclose()
            opened = await open_connection(address, self._settings)
        try:
            yield opened
        except BaseException:
            await opened.aclose()
            raise
        if self._is_closed or address in self._idle:
            await opened.aclose()
        else:
            self._idle[address] = _Idle(opened, trio.current_time())

    async def aclose(self) -> None:
        """Close the idle connections now, and the others at the end of their use."""
        self._is_closed = True
        with trio.CancelScope(shield=True):  # a cancelled task must not keep the others open; closing does not wait
            while self._idle:
                await self._idle.popitem()[1].opened.aclose()
