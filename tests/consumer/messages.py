"""Messages as they are after the wire."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.wire.definitions import registry


def round_trip(message: Any, version: int) -> Any:
    """Return a message after it was encoded and decoded, as everything that is sent must be."""
    codec = registry.codec(type(message).__name__, version)
    return codec.decode(codec.encode(message))
