"""Settings common to every kind of consumer. Names follow Kafka's, with the unit last."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_share_proxy.consumer.option_checks import (
    ABOVE_0,
    FROM_0,
    TIME_ABOVE_0,
    TIME_FROM_0,
    Range,
    mistakes,
    option,
    types_hold,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Settings of a consumer's identity, timeouts and fetches."""

    group_id: str | None = None
    """None: no group, therefore no subscribe and no commit. A share consumer always has one."""
    rack: str | None = None
    max_poll_interval_s: float = option(300.0, "max.poll.interval.ms", TIME_ABOVE_0)
    """Also the rebalance timeout, except in a share consumer."""
    request_timeout_s: float = option(30.0, "request.timeout.ms", TIME_ABOVE_0)
    api_timeout_s: float = option(60.0, "default.api.timeout.ms", Range(above=0))
    """default.api.timeout.ms. After this time a call raises CallTimedOut."""
    retry_backoff_s: float = option(0.1, "retry.backoff.ms", TIME_FROM_0)
    retry_backoff_max_s: float = option(1.0, "retry.backoff.max.ms", TIME_FROM_0)
    metadata_max_age_s: float = option(300.0, "metadata.max.age.ms", Range(least=0))
    rebootstrap_after_s: float = option(300.0, "metadata.recovery.rebootstrap.trigger.ms", Range(least=0))
    fetch_min_bytes: int = option(1, "fetch.min.bytes", FROM_0)
    fetch_max_bytes: int = option(52_428_800, "fetch.max.bytes", ABOVE_0)
    fetch_max_wait_s: float = option(0.5, "fetch.max.wait.ms", TIME_FROM_0)

    @property
    def group(self) -> str:
        """Empty without a group, where no member sends requests."""
        return self.group_id or ""


def common_mistakes(options: ClientOptions) -> list[str]:
    """Return an error text for each wrong option that all kinds of consumers have."""
    problems = mistakes(options)
    if types_hold(options) and options.retry_backoff_s > options.retry_backoff_max_s:
        problems.append(
            f"retry_backoff_s={options.retry_backoff_s:g}: retry.backoff.ms must not be above retry.backoff.max.ms "
            f"(retry_backoff_max_s={options.retry_backoff_max_s:g})"
        )
    return problems
