"""Settings that every kind of consumer has. Names follow Kafka's, units stand last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """What a consumer says to brokers of itself, and how long it waits for them."""

    group_id: str | None = None
    """None: no group; then nothing can be subscribed to or committed. A share consumer always has one."""
    rack: str | None = None
    max_poll_interval_s: float = 300.0
    """Of a consumer also the rebalance timeout."""
    request_timeout_s: float = 30.0
    retry_backoff_s: float = 0.1
    retry_backoff_max_s: float = 1.0
    metadata_max_age_s: float = 300.0
    rebootstrap_after_s: float = 300.0
    """metadata.recovery.rebootstrap.trigger.ms"""
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 52_428_800
    fetch_max_wait_s: float = 0.5

    @property
    def group(self) -> str:
        """The group's id, for requests of a member; empty without a group, where no member makes requests."""
        return self.group_id or ""


def common_mistakes(options: ClientOptions, above_0: Mapping[str, float]) -> list[str]:
    """What is wrong with these settings.

    Args:
        options: of either kind.
        above_0: further ones that must be, by their names.
    """
    named = {
        "max.poll.interval.ms": options.max_poll_interval_s,
        "request.timeout.ms": options.request_timeout_s,
        "fetch.max.bytes": options.fetch_max_bytes,
    }
    found = []
    if options.retry_backoff_s > options.retry_backoff_max_s:
        found.append("retry.backoff.ms must not be above retry.backoff.max.ms")
    return found + [f"{name} must be above 0" for name, value in {**named, **above_0}.items() if value <= 0]
