"""The proxy's own identity where handlers expect a client's connection (interfaces.Connection): one question at a time.

So what handlers do for a client is done for the proxy itself by the same code. Which broker answers does not matter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import trio

from proxy.brokers.connection_slots import SlotValues
from proxy.brokers.own_client import OwnClient
from proxy.loop.promise import Promise, Task
from proxy.wire import registry
from proxy.wire.errors import ProxyError, UpstreamLost
from proxy.wire.values import UNKNOWN_NODE

T = TypeVar("T")

QUESTIONS_MAX = 32
"""Questions that wait; one more fails at once."""


class OwnPort:
    """See interfaces.Connection."""

    id = 0
    """No client's connection has this id."""
    node_id, is_bootstrap = UNKNOWN_NODE, True
    client_host = ""

    def __init__(self, client: OwnClient) -> None:
        self.slot_values: SlotValues = {}
        self._client = client
        self._waiting: deque[tuple[int, int, bytes, Promise[memoryview]]] = deque()
        self._came = trio.Event()

    def ask(self, key: int, version: int, body: bytes) -> Promise[memoryview]:
        """See interfaces.Connection; fails with whatever keeps the question from being answered."""
        promise: Promise[memoryview] = Promise()
        if len(self._waiting) >= QUESTIONS_MAX:
            promise.fail(UpstreamLost(f"{QUESTIONS_MAX} questions of the proxy's own wait already"))
            return promise
        self._waiting.append((key, version, body, promise))
        self._came.set()
        return promise

    def on_close(self, callback: Callable[[], None]) -> None:
        """It never closes."""

    async def run(self) -> None:
        """Ask until cancelled."""
        try:
            while True:
                await self._came.wait()
                self._came = trio.Event()
                while self._waiting:
                    await self._answer(*self._waiting.popleft())
        finally:
            with trio.CancelScope(shield=True):
                await self._client.aclose()

    async def _answer(self, key: int, version: int, body: bytes, promise: Promise[memoryview]) -> None:
        try:
            told, _ = await self._client.ask(key, registry.request(key, version).decode(body))
            promise.set(memoryview(registry.response(key, version).encode(told)))
        except ProxyError as error:
            promise.fail(error)


async def drive(handler: Coroutine[Promise[Any], None, T]) -> T:
    """Run what handlers are made of from a Trio task; cancelled with it."""
    done = trio.Event()
    task: Task[T] = Task(handler, lambda _: done.set())
    try:
        task.start()
        await done.wait()
    finally:
        task.cancel()
    if task.error is not None:
        raise task.error
    return task.value  # type: ignore[return-value]  # finished without error: it is a T
