"""Options of views (settings `views.*`)."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_share_proxy.views.model.names import SLOTS_MAX
from kafka_share_proxy.wire.records import compression
from kafka_share_proxy.wire.values import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """The settings, with their defaults."""

    slots_max: int = SLOTS_MAX
    partitions_max: int = 10_000
    views_max: int = 1_000
    """While there are that many views, clients create no further ones."""
    create_wait_s: float = 10.0
    """Seconds that a request which names a view waits until it is ready."""
    codec: int = compression.NONE
    cache_bytes: int = 64 * MIB
    """Bytes of memory for recently read batches and their parts, which serve other slots too."""
    cache_age_s: float = 10.0
    """Seconds after which cached batches are read again, so that deleted records do not stay available here."""
    read_bytes: int = 4 * MIB
    scanned_bytes: int = 32 * MIB
    """Bytes that a request scans, counted decompressed, before it gets its response, with or without matches."""
