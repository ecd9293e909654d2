"""Connections that remember which requests went over them."""

from __future__ import annotations

import trio
from kafka_share_proxy.wire.definitions import registry


class Tap:
    """Dials as usual, and notes the API of every request that is written, in order."""

    def __init__(self) -> None:
        self.requests: list[tuple[float, str]] = []
        """(trio.current_time(), name of the API), without ApiVersions."""

    async def __call__(self, host: str, port: int) -> trio.abc.Stream:
        return _TappedStream(await trio.open_tcp_stream(host, port), self)

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.requests]

    def times(self, api: str) -> list[float]:
        return [at for at, name in self.requests if name == api]


class _TappedStream(trio.abc.Stream):
    def __init__(self, stream: trio.abc.Stream, tap: Tap) -> None:
        self._stream = stream
        self._tap = tap

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        begin, view = 0, bytes(data)  # whole frames: every sender writes at least that (client/README.md rule 5)
        while begin < len(view):
            name = registry.API_KEYS[int.from_bytes(view[begin + 4 : begin + 6], "big")]
            if name != "ApiVersions":
                self._tap.requests.append((trio.current_time(), name))
            begin += 4 + int.from_bytes(view[begin : begin + 4], "big")
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()
