"""Connections to several brokers, each opened at its first use and kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings, ClusterConnection, open_connection
from kafka_share_proxy.wire.values import Address


class IdleConnections:
    """At most one idle connection to each broker. A concurrent task gets another one."""

    def __init__(self, settings: ClusterClientSettings) -> None:
        self._settings = settings
        self._idle: dict[Address, ClusterConnection] = {}
        self._is_closed = False

    @asynccontextmanager
    async def lend(self, address: Address) -> AsyncIterator[ClusterConnection]:
        """Yield a connection that no other task uses. An error of the block closes it, since a response may be due.

        Raises as `open_connection`.
        """
        opened = self._idle.pop(address, None)
        if opened is not None and trio.current_time() >= opened.expires:
            await opened.aclose()
            opened = None
        if opened is None:
            opened = await open_connection(address, self._settings)
        try:
            yield opened
        except BaseException:
            await opened.aclose()
            raise
        if self._is_closed or address in self._idle:
            await opened.aclose()
        else:
            self._idle[address] = opened

    async def aclose(self) -> None:
        """Close the idle connections now, and the others at the end of their use."""
        self._is_closed = True
        while self._idle:
            await self._idle.popitem()[1].aclose()
