"""Transport to a client whose bytes are also passed to a trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafka_share_proxy.loop.interfaces import Data, Transport

Observe = Callable[[memoryview], None]


class TappedTransport:
    """Same as another transport (see `Transport`). Only `recv_into` and `send` are observed: pieces are joined."""

    sendmsg: Callable[[Sequence[Data]], int] | None = None

    __slots__ = ("_received", "_sent", "transport")

    def __init__(self, transport: Transport, received: Observe, sent: Observe) -> None:
        """`received` and `sent` are called with the bytes from and to the client. They must not raise."""
        self.transport = transport
        self._received = received
        self._sent = sent

    def recv_into(self, buffer: memoryview) -> int:
        count = self.transport.recv_into(buffer)
        if count:
            self._received(buffer[:count])
        return count

    def send(self, data: Data) -> int:
        count = self.transport.send(data)
        if count:
            self._sent(memoryview(data)[:count])
        return count

    def attach(self, ready: Callable[[int], None], mask: int) -> None:
        self.transport.attach(ready, mask)

    def want(self, mask: int) -> None:
        self.transport.want(mask)

    def wait_for(self, count: int) -> None:
        self.transport.wait_for(count)

    def send_eof(self) -> None:
        self.transport.send_eof()

    def discard_received(self) -> bool:
        return self.transport.discard_received()

    def close(self) -> None:
        self.transport.close()
