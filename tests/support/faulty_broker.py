"""A broker with a seeded fault: frames pass between clients and a real broker, and one thing is altered.

Addresses in responses become those of the faulty brokers, so that clients stay on them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
from kafka_share_proxy.wire.codec import frames, headers
from kafka_share_proxy.wire.codec.frames import FrameReader
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ProxyError
from kafka_share_proxy.wire.values import Address

RECEIVE_BYTES = 64 << 10
KEYS = {name: key for key, name in registry.API_KEYS.items()}
WITH_ADDRESSES = {
    KEYS[name]
    for name in ("Metadata", "FindCoordinator", "DescribeCluster", "Produce", "Fetch", "ShareFetch", "ShareAcknowledge")
}
LISTS = ("brokers", "coordinators", "node_endpoints")
"""Fields with addresses."""

Change = Callable[[Any], None]
"""Alters a message in place."""


@dataclass(frozen=True)
class Fault:
    """One fault, and the case that must catch it."""

    id: str
    case_id: str
    api: str = ""
    response: Change | None = None
    request: Change | None = None
    frame: Callable[[bytes], bytes] | None = None
    """Alters the bytes of the response, without size."""
    keeps_connections: bool = False
    """The end of a connection on one side is hidden from the other."""
    copies: int = 1
    """Number of times that a response is sent."""
    swaps: bool = False
    """Each response is sent after the next one."""
    shown: Change | None = None
    """Alters DescribeConfigs responses."""

    def __str__(self) -> str:
        """Return the id, which names a test."""
        return self.id


def replace(path: str, old: Any, new: Any) -> Change:
    """Return a change of every field at the path that has the old value."""
    return put(path, lambda value: new if value == old else value)


def put(path: str, change: Any) -> Change:
    """Return a change of every field at the path: to a value, or by a function of the value."""

    def apply(message: Any) -> None:
        for holder, name in _holders(message, path.split(".")):
            value = getattr(holder, name)
            setattr(holder, name, change(value) if callable(change) else change)

    return apply


def other_setting(fault_id: str, case_id: str, name: str, value: str) -> Fault:
    """Return a fault of a broker that shows a setting as it was requested, and uses another value."""
    requested: dict[str, str] = {}

    def use(message: Any) -> None:
        for resource in message.resources:
            for config in resource.configs:
                if config.name == name:
                    requested[resource.resource_name], config.value = config.value, value

    def show(message: Any) -> None:
        for result in message.results:
            for config in result.configs:
                if config.name == name:
                    config.value = requested.get(result.resource_name, config.value)

    return Fault(fault_id, case_id, "IncrementalAlterConfigs", request=use, shown=show)


def _holders(message: Any, names: list[str]) -> Iterator[tuple[Any, str]]:
    if len(names) == 1:
        yield message, names[0]
        return
    value = getattr(message, names[0].removesuffix("[]"))
    for each in (value or ()) if names[0].endswith("[]") else [value]:
        if each is not None:
            yield from _holders(each, names[1:])


@dataclass
class FaultyBroker:
    """One listener in front of a broker."""

    upstream: Address
    fault: Fault | None
    served: MutableMapping[Address, Address] = field(default_factory=dict)
    """Upstream address -> where it is served. Shared by the faulty brokers of one cluster."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Address]:
        """Serve until the block ends; yields the address."""
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            self.served[self.upstream] = served = Address("127.0.0.1", listener.socket.getsockname()[1])
            nursery.start_soon(trio.serve_listeners, self._serve, [listener])
            yield served
            nursery.cancel_scope.cancel()

    async def _serve(self, client: trio.SocketStream) -> None:
        broker = await trio.open_tcp_stream(*self.upstream)
        apis: dict[int, list[tuple[int, int]]] = {}
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._to_broker, client, broker, apis, nursery.cancel_scope)
                nursery.start_soon(self._to_client, broker, client, apis, nursery.cancel_scope)
        finally:
            for stream in (client, broker):
                stream.socket.close()

    async def _to_broker(
        self, client: Any, broker: Any, apis: dict[int, list[tuple[int, int]]], scope: trio.CancelScope
    ) -> None:
        data = bytearray()
        try:
            while received := await client.receive_some(RECEIVE_BYTES):
                data += received
                while (frame := _whole_frame(data)) is not None:
                    await broker.send_all(self._request(frame, apis))
                if not 0 <= int.from_bytes(data[:4].ljust(4, b"\0"), "big", signed=True) <= frames.FRAME_BYTES_MAX:
                    await broker.send_all(bytes(data))
                    data.clear()
        except (OSError, trio.BrokenResourceError):
            pass
        await self._ended(scope)

    async def _to_client(
        self, broker: Any, client: Any, apis: dict[int, list[tuple[int, int]]], scope: trio.CancelScope
    ) -> None:
        reader, held = FrameReader(), b""
        try:
            while received := await broker.receive_some(RECEIVE_BYTES):
                for frame in reader.receive_data(received):
                    sent = self._response(frame, apis)
                    if self.fault is not None and self.fault.swaps:
                        sent, held = (sent + held, b"") if held else (b"", sent)
                    if sent:
                        await client.send_all(sent)
        except (OSError, trio.BrokenResourceError):
            pass
        await self._ended(scope)

    async def _ended(self, scope: trio.CancelScope) -> None:
        if self.fault is not None and self.fault.keeps_connections:
            await trio.sleep_forever()
        scope.cancel()

    def _request(self, frame: bytes, apis: dict[int, list[tuple[int, int]]]) -> bytes:
        sized = len(frame).to_bytes(4, "big") + frame
        try:
            key, version, number = headers.peek(frame)
            apis.setdefault(number, []).append((key, version))
            if self.fault is None or self.fault.request is None or registry.API_KEYS.get(key) != self.fault.api:
                return sized
            header, message = frames.decode_request(frame)
        except ProxyError:
            return sized
        self.fault.request(message)
        return frames.request(key, version, number, header.client_id, message)

    def _response(self, frame: bytes, apis: dict[int, list[tuple[int, int]]]) -> bytes:
        number = headers.correlation_id(frame)
        key, version = apis[number].pop(0) if apis.get(number) else (-1, -1)
        fault = self.fault if self.fault is not None and registry.API_KEYS.get(key) == self.fault.api else None
        change = self._change(key)
        if key in WITH_ADDRESSES or change is not None:
            try:
                message = frames.decode_response(key, version, frame)[1]
            except ProxyError:
                return len(frame).to_bytes(4, "big") + frame
            self._own_addresses(key, message)
            if change is not None:
                change(message)
            frame = frames.response(key, version, number, message)[4:]
        if fault is not None and fault.frame is not None:
            frame = fault.frame(frame)
        return (len(frame).to_bytes(4, "big") + frame) * (fault.copies if fault is not None else 1)

    def _change(self, key: int) -> Change | None:
        """Return what alters responses of an API."""
        if self.fault is None:
            return None
        if key == KEYS["DescribeConfigs"] and self.fault.shown is not None:
            return self.fault.shown
        return self.fault.response if registry.API_KEYS.get(key) == self.fault.api else None

    def _own_addresses(self, key: int, message: Any) -> None:
        if key not in WITH_ADDRESSES:
            return
        listed = [each for name in LISTS for each in getattr(message, name, None) or ()]
        for each in [*listed, message]:
            if getattr(each, "host", None):
                each.host, each.port = self.served[Address(each.host, each.port)]


def _whole_frame(data: bytearray) -> bytes | None:
    """Remove the first whole frame from the received bytes and return it without size; None if there is none."""
    if len(data) < 4:
        return None
    size = int.from_bytes(data[:4], "big", signed=True)
    if not 0 <= size <= frames.FRAME_BYTES_MAX or len(data) < 4 + size:
        return None
    frame = bytes(data[4 : 4 + size])
    del data[: 4 + size]
    return frame
