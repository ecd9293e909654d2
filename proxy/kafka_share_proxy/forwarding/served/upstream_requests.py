"""Encode and decode messages for handlers."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.slices import Work
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.messages import Message, RequestMessage

R = TypeVar("R", bound=Message)

AT_ONCE_BYTES = 8 << 10
"""Maximum bytes of a request encoded, or of a response decoded, in one go."""
RESPONSE_ELEMENTS_MAX = 5_000_000
"""Maximum number of array elements in a broker's response (its bytes: `limits.collected_bytes`)."""


def send_request(connection: Connection, key: int, version: int, request: RequestMessage[R]) -> Promise[memoryview]:
    """Send a request on the client's upstream connection. Decode the response with `decode_response`."""
    return connection.send_request(key, version, registry.request(key, version).encode(request))


def decode_response(response: type[R], version: int, body: memoryview) -> R:
    """Decode the response to `send_request`. Raises RemoteProtocolError if the bytes are invalid."""
    return registry.codec_of(response, version).decode(body)


async def send_request_in_slices(
    work: Work, connection: Connection, key: int, version: int, request: RequestMessage[R]
) -> Promise[memoryview]:
    """Send a request like `send_request`, encoded in slices. See `decode_response_in_slices`."""
    parts: list[Any] = []
    await work.drive(registry.request(key, version).encode_in_slices(request, parts))
    return connection.send_request(key, version, b"".join(parts))


async def decode_response_in_slices(work: Work, response: type[R], version: int, body: memoryview) -> R:
    """Decode a response like `decode_response`, in slices if it is large."""
    codec = registry.codec_of(response, version)
    if len(body) <= AT_ONCE_BYTES:
        return codec.decode(body)
    return await work.drive(codec.decode_in_slices(body, 0, RESPONSE_ELEMENTS_MAX))


async def send_upstream(call: Call[Message], request: RequestMessage[R]) -> R:
    """Send a request of the client's API and version upstream. Returns the decoded response."""
    key, version, parts = call.key, call.version, list[Any]()
    if call.frame is not None and len(call.frame) <= AT_ONCE_BYTES:
        body = await call.connection.send_request(key, version, registry.request(key, version).encode(request))
        if len(body) <= AT_ONCE_BYTES:
            small: R = registry.response(key, version).decode(body)
            return small
        return await _read(call, request, body)
    await call.work.drive(registry.request(key, version).encode_in_slices(request, parts))
    return await _read(call, request, await call.connection.send_request(key, version, b"".join(parts)))


async def _read(call: Call[Message], _request: RequestMessage[R], body: memoryview) -> R:
    codec = registry.response(call.key, call.version)
    response: R = await call.work.drive(codec.decode_in_slices(body, 0, RESPONSE_ELEMENTS_MAX))
    return response


async def replied(call: Call[RequestMessage[R]], message: R) -> bytes:
    """Encode the response frame like `reply`, in slices because it may have many elements."""
    return await call.work.drive(frames.response_in_slices(call.key, call.version, call.correlation_id, message))


async def framed(call: Call[Any], body: frames.ResponseFrame | Message | None) -> frames.ResponseFrame | None:
    return await replied(call, body) if isinstance(body, Message) else body


async def decoded(call: Call[RequestMessage[R]], body: frames.ResponseFrame | Message) -> R:
    if isinstance(body, Message):
        return cast(R, body)  # the handler returns only this class
    frame = memoryview(bytes(body))[4:]
    return await call.work.drive(frames.decode_response_in_slices(call.key, call.version, frame))


def reply(call: Call[RequestMessage[R]], message: R) -> bytes:
    return frames.response(call.key, call.version, call.correlation_id, message)
