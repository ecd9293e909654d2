"""A world with a local handler whose every step a test decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Promise

from tests.forwarding.plane_world import HEARTBEAT, World, request, some_routes, world

QUERY_VERSION = 0
"""Heartbeat v0: header v1, no tags."""


def requested(correlation_id: int, body: bytes) -> bytes:
    """A request of the proxy's own: header v1 without a client id."""
    return request(HEARTBEAT, QUERY_VERSION, correlation_id, b"\xff\xff" + body)


class Handler:
    """A local handler whose every step a test decides."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.results: list[Promise[bytes | None]] = []
        self.ended: list[int] = []

    async def __call__(self, call: Call) -> bytes | None:
        self.calls.append(call)
        self.results.append(Promise())
        try:
            return await self.results[-1]
        finally:
            self.ended.append(call.correlation_id)


def local_world(handler: Callable[..., Any], limits: Limits | None = None, **options: Any) -> Any:
    return world(some_routes(local=handler), limits, **options)


def started(w: World, handler: Handler, count: int = 1) -> Call:
    w.iterate_until(lambda: len(handler.calls) >= count)
    return handler.calls[count - 1]
