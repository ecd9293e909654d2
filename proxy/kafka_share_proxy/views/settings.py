"""Settings `views.*`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kafka_share_proxy.feature.settings import Kept, Seconds, Section


class Views(Section):
    """Views: slices of a topic's partitions by key, as topics that any consumer can read."""

    serve: bool = True
    """Off: topics named like views are topics like any other."""
    state: Kept = "topic"
    """topic: plans, and which base a view belongs to, are kept in a topic of the cluster; memory: with this proxy."""
    slots_max: Annotated[int, Field(ge=2, le=1024)] = 1024
    """A view that would have more slots is refused."""
    partitions_max: Annotated[int, Field(ge=2, le=1_000_000)] = 10_000
    views_max: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    """Largest number of views. While there are that many, clients create no further ones."""
    """A view that would have more partitions (those of its base times its slots) is refused."""
    create_wait_s: Annotated[float, Field(gt=0, le=60, allow_inf_nan=False)] = 10.0
    """How long a request that first names a view waits for the view's topic to be there."""
    growth_interval_s: Seconds = 30.0
    """How often the bases of views are looked at for new partitions, and for having been made anew."""
    codec: Literal["none", "lz4", "zstd"] = "none"
    """How filtered batches are compressed: not at all costs the least here, and the most on the way to the client."""
    cache_bytes: Annotated[int, Field(ge=1 << 20, le=1 << 36)] = 64 << 20
    """Batches just read, and what was made of them, kept for the other slots of views."""
    cache_age_s: Seconds = 10.0
    """How long they are kept at most: deleted records may be served so long."""
    read_bytes: Annotated[int, Field(ge=1 << 16, le=1 << 26)] = 4 << 20
    """Records that one upstream Fetch requests."""
    scanned_bytes: Annotated[int, Field(ge=1 << 16, le=1 << 32)] = 32 << 20
    """An answer is given once so much was looked through, or opened where it is compressed, matched or not."""
