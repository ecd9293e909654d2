"""Record of each request that is served here, with its requests upstream (forwarding/README.md rule 49).

How it works: if tracing is on, every handler is wrapped, and the wrapper reports what happened when the handler has
ended. Without tracing the routes stay as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.forwarding.dispatch.routes import Handler, Routes
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.codec.frames import ResponseFrame
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ProxyError

UPSTREAM_MAX = 100
"""Maximum number of upstream requests recorded for one request."""


@dataclass(slots=True)
class UpstreamRequest:
    """Request of the proxy on the client's upstream connection."""

    key: int
    version: int
    begun_ns: int
    ended_ns: int = 0
    """0: there is no response yet."""
    error: BaseException | None = None


@dataclass(slots=True)
class ServedRequest:
    """A request with its response. Times are nanoseconds since 1970."""

    call: Call[Any]
    begun_ns: int
    ended_ns: int = 0
    upstream: list[UpstreamRequest] = field(default_factory=list)
    upstream_left_out: int = 0
    response: ResponseFrame | Message | None = None
    error: BaseException | None = None
    """Failure of the handler, or GeneratorExit if the client left."""


class Tracing:
    """Wrapper of handlers."""

    def __init__(self, record: Callable[[ServedRequest], None], now_ns: Callable[[], int] = time.time_ns) -> None:
        self._record = record
        self._now_ns = now_ns
        self._current: dict[int, ServedRequest] = {}
        """Request that is being served, by connection."""

    def traced(self, routes: Routes) -> Routes:
        """Return the routes with wrapped handlers, and without synchronous fast paths, which have no task."""
        wrapped = Routes(routes.fallback)
        for route in routes.values():
            traced = None if route.handler is None else partial(self._serve, route.handler)
            wrapped.add(route if traced is None else replace(route, handler=traced, synchronous_handler=None))
        return wrapped

    def sent(self, connection: Connection, key: int, version: int, response: Promise[memoryview]) -> None:
        """Record a request upstream, if the connection's request is being served."""
        served = self._current.get(connection.id)
        if served is None:
            return
        if len(served.upstream) == UPSTREAM_MAX:
            served.upstream_left_out += 1
            return
        sent = UpstreamRequest(key, version, self._now_ns())
        served.upstream.append(sent)
        response.on_settled(partial(self._settled, sent, response))

    def _settled(self, sent: UpstreamRequest, response: Promise[memoryview]) -> None:
        sent.ended_ns = self._now_ns()
        try:
            response.result()
        except ProxyError as error:
            sent.error = error

    async def _serve(self, handler: Handler, call: Call[Any]) -> ResponseFrame | Message | None:
        served = self._current[call.connection.id] = ServedRequest(call, self._now_ns())
        try:
            served.response = await handler(call)
        except BaseException as error:
            served.error = error
            raise
        finally:
            self._current.pop(call.connection.id, None)
            served.ended_ns = self._now_ns()
            if served.response is not None or served.error is not None:
                self._record(served)  # the others are forwarded
        return served.response
