"""Bounded trail of requests and responses as bytes, for reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from kafka_share_proxy.wire.codec import tree
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ProxyError

KEPT_EXCHANGES = 30
"""Exchanges that a trail keeps; older ones are dropped."""
HEX_BYTES = 4096
"""Bytes of a frame shown as hex."""


@dataclass
class Exchange:
    """One request and its response, if there was one."""

    key: int
    version: int
    request: bytes
    """Frame without size."""
    response: bytes | None = None
    """Frame without size; None if none was received."""
    ending: str = ""
    """Why there is no response."""

    @property
    def name(self) -> str:
        """API and version."""
        return f"{registry.API_KEYS.get(self.key, f'key {self.key}')} v{self.version}"

    @property
    def request_tree(self) -> str:
        """The decoded request, or the reason why it cannot be decoded."""
        return _tree(self.request, None)

    @property
    def response_tree(self) -> str:
        """The decoded response, or what happened instead."""
        if self.response is None:
            return self.ending or "no response"
        return _tree(self.response, (self.key, self.version))

    @property
    def response_hex(self) -> str:
        """Bytes of the response, truncated to HEX_BYTES."""
        data = self.response or b""
        return data[:HEX_BYTES].hex(" ", 4) + (f" ... ({len(data)} bytes)" if len(data) > HEX_BYTES else "")


@dataclass
class Trail:
    """The last exchanges of a case, over all of its connections."""

    exchanges: deque[Exchange] = field(default_factory=lambda: deque(maxlen=KEPT_EXCHANGES))

    def begin(self, key: int, version: int, request: bytes) -> Exchange:
        """Add a request that was sent."""
        exchange = Exchange(key, version, request)
        self.exchanges.append(exchange)
        return exchange

    def last(self, count: int) -> Iterator[Exchange]:
        """Yield the last exchanges, the oldest of them first."""
        yield from list(self.exchanges)[-count:]


def _tree(frame: bytes, response_to: tuple[int, int] | None) -> str:
    sized = len(frame).to_bytes(4, "big") + frame
    try:
        return "\n".join(line for node in tree.capture(sized, response_to) for line in node.lines())
    except ProxyError as error:
        return f"{len(frame)} bytes that cannot be decoded: {error}"
