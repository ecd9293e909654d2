"""A consumer for the time of an `async with` block, its network task beside it (client/README.md rules 16 and 17)."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

import trio

from proxy.client.network_task import NetworkLoop

CLOSE_S = 30.0
"""For the listener's last words, what is under way, and leaving the group."""
CANCELLED_CLOSE_S = 2.0
"""The same where the block was cancelled: then somebody waits for it to end."""


class Closable(Protocol):
    """What a block gives to the application."""

    async def close(self) -> None:
        """Give everything up and leave the group."""
        ...


Opened = TypeVar("Opened", bound=Closable)


class OpenBlock(Generic[Opened]):
    """Runs the network task beside the block.

    What the block raises comes out as it is, Ctrl-C too, and not in a group: the nursery is not told of it. Of a
    cancellation it is, alone or among others, because the nursery may be what was cancelled.

    Ctrl-C comes to the program's own task, when it waits: those of the consumer are protected from it
    (trio.lowlevel.enable_ki_protection), for the group has still to be left.
    """

    def __init__(self, make: Callable[[], tuple[NetworkLoop[Any], Opened]]) -> None:
        """`make`: the network task and the consumer, which has begun; what is wrong with it is raised there."""
        self._make = make
        self._nursery_of = trio.open_nursery()
        self._network_scope = trio.CancelScope(shield=True)
        """Of the network task: the group is left also where the block was cancelled, and then it ends."""
        self._consumer: Opened | None = None

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Opened:
        if self._consumer is not None:
            raise RuntimeError("this consumer was opened before: open another one")
        network, consumer = self._make()  # before anything runs: what is wrong with it has no consequences
        self._consumer = consumer
        nursery = await self._nursery_of.__aenter__()
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
                await self._nursery_of.__aexit__(kind, error, trace)
            else:
                await self._nursery_of.__aexit__(None, None, None)
        return False

    async def _close(self) -> None:
        cancelled = trio.current_effective_deadline() == -math.inf
        with trio.CancelScope(shield=True) as scope:
            scope.deadline = trio.current_time() + (CANCELLED_CLOSE_S if cancelled else CLOSE_S)
            if self._consumer is not None:
                await self._consumer.close()
