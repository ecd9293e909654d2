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
    """topic: plans, and the base of each view, are kept in a topic of the cluster. memory: gone when the proxy ends."""
    slots_max: Annotated[int, Field(ge=2, le=1024)] = 1024
    """Maximum number of slots of a view."""
    partitions_max: Annotated[int, Field(ge=2, le=1_000_000)] = 10_000
    """Maximum number of partitions of a view: those of its base times its slots."""
    views_max: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    """Maximum number of views. While there are that many, clients create no further ones."""
    create_wait_s: Annotated[float, Field(gt=0, le=60, allow_inf_nan=False)] = 10.0
    """Seconds that a request waits for the topic of a view that it is the first to name."""
    growth_interval_s: Seconds = 30.0
    """Seconds between two checks of the bases of views, for new partitions and for topics that were recreated."""
    codec: Literal["none", "lz4", "zstd"] = "none"
    """Compression of filtered batches. none costs the least here, and the most on the way to the client."""
    cache_bytes: Annotated[int, Field(ge=1 << 20, le=1 << 36)] = 64 << 20
    """Maximum bytes of recently read batches, and of their parts, that are kept for the other slots of views."""
    cache_age_s: Seconds = 10.0
    """Maximum seconds that batches are kept. Deleted records may be served that long."""
    read_bytes: Annotated[int, Field(ge=1 << 16, le=1 << 26)] = 4 << 20
    """Bytes of records that one upstream Fetch requests."""
    scanned_bytes: Annotated[int, Field(ge=1 << 16, le=1 << 32)] = 32 << 20
    """Bytes that are scanned or decompressed before a response is sent, even if no record matches."""
