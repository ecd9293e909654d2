"""A consumer for the duration of an `async with` block, with its network task (client/README.md rules 16 and 17)."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

import trio

from kafka_share_proxy.client.network_task import NetworkLoop
from kafka_share_proxy.consumer.events import CallTimedOut
from kafka_share_proxy.consumer.troubles import TroubleKind

CLOSE_S = 30.0
"""Seconds for the last call of the listener, requests in flight, and leaving the group."""
CANCELLED_CLOSE_S = 2.0
"""Seconds for the same after a cancellation, because the canceller waits for the block."""

SLOW_CLOSE_S = 3.0
"""Seconds after which a close is logged as slow, with what it waits for."""


class Closable(Protocol):
    """Consumer object that a block returns to the application."""

    async def close(self) -> None: ...


Opened = TypeVar("Opened", bound=Closable)


class OpenBlock(Generic[Opened]):
    """Context manager that runs the network task in parallel to the block.

    An exception of the block is raised unchanged (client/README.md rule 17). A cancellation is forwarded to the
    nursery, which may be what was cancelled.

    Ctrl-C is raised in the program's own task when it waits. The tasks of the consumer are protected from it
    (trio.lowlevel.enable_ki_protection), because the group must still be left.
    """

    def __init__(self, make: Callable[[], tuple[NetworkLoop[Any], Opened]]) -> None:
        """Prepare the block. `make` raises if the arguments are invalid."""
        self._make = make
        self._nursery_manager = trio.open_nursery()
        self._network_scope = trio.CancelScope(shield=True)
        """Shielded, so that the group is left also if the block was cancelled."""
        self._consumer: Opened | None = None
        self._network: NetworkLoop[Any] | None = None
        self._nursery: trio.Nursery | None = None
        self._is_closed = trio.Event()

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Opened:
        if self._consumer is not None:
            raise RuntimeError("this consumer was opened before: open another one")
        network, consumer = self._make()  # before anything runs: an error has no consequences then
        self._consumer, self._network = consumer, network
        self._nursery = nursery = await self._nursery_manager.__aenter__()
        nursery.start_soon(self._run, network, name="network task of a consumer")
        return consumer

    @trio.lowlevel.enable_ki_protection
    async def _run(self, network: NetworkLoop[Any]) -> None:
        with self._network_scope:
            await network.run()

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            await self._close()
        finally:
            self._network_scope.cancel()
            if isinstance(error, trio.Cancelled | BaseExceptionGroup) and not isinstance(error, Exception):
                await self._nursery_manager.__aexit__(kind, error, trace)
            else:
                await self._nursery_manager.__aexit__(None, None, None)
        return False

    async def _close(self) -> None:
        cancelled = trio.current_effective_deadline() == -math.inf
        with trio.CancelScope(shield=True) as scope:
            limit_s = CANCELLED_CLOSE_S if cancelled else CLOSE_S
            scope.deadline = trio.current_time() + limit_s
            if self._consumer is not None:
                await self._close_or_warn(self._consumer)
        if scope.cancelled_caught:
            self._warn(f"the group was not left, and last commits may be missing, after {limit_s:g} s; {self._why()}")

    async def _close_or_warn(self, consumer: Opened) -> None:
        """Close a consumer. A time-out is logged, not raised."""
        if self._nursery is not None:
            self._nursery.start_soon(self._warn_later, name="slow close")
        try:
            await consumer.close()
        except CallTimedOut as error:
            self._warn(f"not closed: {error}")
        finally:
            self._is_closed.set()

    @trio.lowlevel.enable_ki_protection
    async def _warn_later(self) -> None:
        with trio.move_on_after(SLOW_CLOSE_S):
            await self._is_closed.wait()
            return
        self._warn(f"closing takes longer than {SLOW_CLOSE_S:g} s; {self._why()}")

    def _why(self) -> str:
        return "" if self._network is None else self._network.why()

    def _warn(self, text: str) -> None:
        if self._network is not None:
            self._network.log.warning(TroubleKind.GROUP, text)
