"""Messages as they are after the wire."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.wire.definitions import registry


def crossed(message: Any, version: int) -> Any:
    """Written and read once: everything that is sent can be."""
    codec = registry.codec(type(message).__name__, version)
    return codec.decode(codec.encode(message))
