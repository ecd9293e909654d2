"""A peer that responds to each request by a function, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.codec.frames import FrameReader
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.values import Address

HOST = "127.0.0.1"
Respond = Callable[[str, int, Any], Any]
"""(API, version, request) -> response, bytes to send as they are, or None to close the connection."""


@asynccontextmanager
async def scripted_peer(respond: Respond) -> AsyncIterator[Address]:
    """Serve until the block ends; yields the address."""
    try:
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host=HOST)
            nursery.start_soon(trio.serve_listeners, partial(_serve, respond), [listener])
            yield Address(HOST, listener.socket.getsockname()[1])
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None


async def _serve(respond: Respond, stream: trio.SocketStream) -> None:
    reader = FrameReader()
    async with stream:
        try:
            while data := await stream.receive_some(65536):
                for frame in reader.receive_data(data):
                    header, message = frames.decode_request(frame)
                    reply = respond(registry.API_KEYS[header.key], header.version, message)
                    if reply is None:
                        return
                    if not isinstance(reply, bytes):
                        reply = frames.response(header.key, header.version, header.correlation_id, reply)
                    await stream.send_all(reply)
        except (OSError, trio.BrokenResourceError):
            return


def response(api: str, **fields: Any) -> Any:
    """Return a response message."""
    return registry.message(f"{api}Response")(**fields)


def versions(**ranges: tuple[int, int]) -> Any:
    """Return an ApiVersions response with these APIs."""
    response_class = registry.message("ApiVersionsResponse")
    keys = {name: key for key, name in registry.API_KEYS.items()}
    listed = [response_class.ApiVersion(api_key=keys[n], min_version=a, max_version=b) for n, (a, b) in ranges.items()]
    return response_class(api_keys=listed)
