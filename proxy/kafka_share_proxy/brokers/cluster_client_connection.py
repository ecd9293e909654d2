"""The proxy's own identity as a connection for handlers (interfaces.Connection): it runs handler code for itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import trio

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.connection_slots import SlotValues
from kafka_share_proxy.loop.promise import Promise, Task
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ProxyError, UpstreamLost
from kafka_share_proxy.wire.values import UNKNOWN_NODE

T = TypeVar("T")

QUERIES_MAX = 32
"""Maximum number of waiting requests. Further ones fail immediately."""


class ClusterClientConnection:
    """Connection over the proxy's own client. See interfaces.Connection."""

    id = 0
    """Id that no client connection has."""
    node_id, is_bootstrap = UNKNOWN_NODE, True
    client_host = ""

    def __init__(self, client: ClusterClient) -> None:
        self.slot_values: SlotValues = {}
        self._client = client
        self._waiting: deque[tuple[int, int, bytes, Promise[memoryview]]] = deque()
        self._queued = trio.Event()

    def send_request(self, key: int, version: int, body: bytes) -> Promise[memoryview]:
        """Queue a request. Fails with any error of the request. See interfaces.Connection."""
        promise: Promise[memoryview] = Promise()
        if len(self._waiting) >= QUERIES_MAX:
            promise.fail(UpstreamLost(f"{QUERIES_MAX} requests under the proxy's own identity wait already"))
            return promise
        self._waiting.append((key, version, body, promise))
        self._queued.set()
        return promise

    def on_close(self, callback: Callable[[], None]) -> None:
        """Ignore the callback: this connection never closes."""

    def not_on_close(self, callback: Callable[[], None]) -> None:
        """Ignore the callback, as `on_close` does."""

    async def run(self) -> None:
        try:
            while True:
                await self._queued.wait()
                self._queued = trio.Event()
                while self._waiting:
                    await self._response(*self._waiting.popleft())
        finally:
            with trio.CancelScope(shield=True):
                await self._client.aclose()

    async def _response(self, key: int, version: int, body: bytes, promise: Promise[memoryview]) -> None:
        try:
            received, _ = await self._client.send_request(key, registry.request(key, version).decode(body))
            promise.set(memoryview(registry.response(key, version).encode(received)))
        except ProxyError as error:
            promise.fail(error)


async def drive(handler: Coroutine[Promise[Any], None, T]) -> T:
    """Run a handler from a Trio task, and cancel it with the task."""
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
