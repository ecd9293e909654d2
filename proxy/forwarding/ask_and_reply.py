"""Messages in, messages out: what handlers do around `Connection.ask` and for their own answer."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from proxy.brokers.interfaces import Connection
from proxy.forwarding.interfaces import Call
from proxy.loop.promise import Promise
from proxy.wire import frames, registry
from proxy.wire.messages import Message, RequestMessage

R = TypeVar("R", bound=Message)
"""The class of the answer."""

AT_ONCE_BYTES = 8 << 10
"""What a client's request of this size at most comes to is written in one go; so is an answer of this size read."""
ANSWER_ELEMENTS_MAX = 5_000_000
"""Elements in all arrays of an answer of a broker, which is bounded by its bytes (`limits.collected_bytes`) already."""


def ask(connection: Connection, key: int, version: int, request: RequestMessage[R]) -> Promise[memoryview]:
    """Send a request of the proxy's own on the client's upstream connection; `told` reads the answer."""
    return connection.ask(key, version, registry.request(key, version).encode(request))


def told(response: type[R], version: int, answer: memoryview) -> R:
    """The decoded answer to `ask`, of this class. Raises RemoteProtocolError when it is none."""
    return registry.codec_of(response, version).decode(answer)


async def ask_upstream(call: Call[Message], request: RequestMessage[R]) -> R:
    """Ask the same API in the same version as the client did, and wait for the decoded answer; in slices if large."""
    key, version, parts = call.key, call.version, list[Any]()
    if call.frame is not None and len(call.frame) <= AT_ONCE_BYTES:
        answer = await call.connection.ask(key, version, registry.request(key, version).encode(request))
        if len(answer) <= AT_ONCE_BYTES:
            small: R = registry.response(key, version).decode(answer)
            return small
        return await _read(call, request, answer)
    await call.work.drive(registry.request(key, version).encode_in_slices(request, parts))
    return await _read(call, request, await call.connection.ask(key, version, b"".join(parts)))


async def _read(call: Call[Message], _request: RequestMessage[R], answer: memoryview) -> R:
    """The answer to a request, in slices."""
    codec = registry.response(call.key, call.version)
    response: R = await call.work.drive(codec.decode_in_slices(answer, 0, ANSWER_ELEMENTS_MAX))
    return response


async def replied(call: Call[RequestMessage[R]], message: R) -> bytes:
    """As `reply`, in slices: for answers that may have many elements."""
    return await call.work.drive(frames.response_in_slices(call.key, call.version, call.correlation_id, message))


async def framed(call: Call[Any], answer: frames.Answer | Message | None) -> frames.Answer | None:
    """What a handler gave, as a frame where it is a message."""
    return await replied(call, answer) if isinstance(answer, Message) else answer


async def decoded(call: Call[RequestMessage[R]], answer: frames.Answer | Message) -> R:
    """What a handler gave, as a message where it is a frame."""
    if isinstance(answer, Message):
        return cast(R, answer)  # no handler gives another
    frame = memoryview(bytes(answer))[4:]
    return await call.work.drive(frames.decode_response_in_slices(call.key, call.version, frame))


def reply(call: Call[RequestMessage[R]], message: R) -> bytes:
    """The whole response frame for a call."""
    return frames.response(call.key, call.version, call.correlation_id, message)
