"""How views are served (settings `views.*`)."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.views.model.names import SLOTS_MAX
from proxy.wire import compression
from proxy.wire.values import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """The settings, with their defaults."""

    slots_max: int = SLOTS_MAX
    """A view that would have more slots is refused."""
    partitions_max: int = 10_000
    """A view that would have more partitions is refused."""
    create_wait_s: float = 10.0
    """How long a request that names a view waits for it to be ready."""
    codec: int = compression.NONE
    """How filtered batches are compressed."""
    cache_bytes: int = 64 * MIB
    """Batches just read, and their parts, kept for the other slots."""
    cache_age_s: float = 10.0
    """Cached batches older than this are read again, so that deleted records do not live on here."""
    read_bytes: int = 4 * MIB
    """Records asked for in one upstream Fetch."""
    scanned_bytes: int = 32 * MIB
    """An answer is given once so much was looked through, or opened where it is compressed, matched or not."""
