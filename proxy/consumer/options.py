"""Settings of one consumer, checked before anything is sent. Names follow Kafka's, units stand last."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from proxy.consumer.client_options import ClientOptions, common_mistakes
from proxy.consumer.deadlines import DelayLimits
from proxy.consumer.key_filter import KeyFilter
from proxy.wire.errors import ConfigError

RESETS = ("earliest", "latest", "none")
PROTOCOLS = ("classic", "consumer")
ASSIGNOR_NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")


class ConfigurationError(ConfigError):
    """Settings, or a call, that cannot work together with the settings; raised before any request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions(ClientOptions):
    """Everything that is decided when a consumer is opened."""

    group_instance_id: str | None = None
    """Makes the member static (KIP-345)."""
    group_protocol: str = "classic"
    """`classic`, or `consumer` (KIP-848)."""
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    """partition.assignment.strategy; of the classic protocol, the preferred one first."""
    server_assignor: str | None = None
    """group.remote.assignor: the assignor at the broker, in groups of KIP-848."""
    session_timeout_s: float = 45.0
    heartbeat_interval_s: float = 3.0
    max_revoke_delay_s: float = math.inf
    auto_commit_interval_s: float | None = None
    """None: the application commits."""
    auto_offset_reset: str = "latest"
    read_committed: bool = False
    enable_parallel_rebalance: bool = False
    """enable.parallel.rebalance (KIP-333): go on at the end of the log, and catch up beside it."""
    catch_up_lag_min: int = 1
    """Offsets that must lie behind for that."""
    allow_auto_create_topics: bool = False
    """allow.auto.create.topics: brokers that do so make topics that are named and missing, the proxy makes views."""
    key_filter: KeyFilter | None = None
    """Which records are read, of every partition; None: all."""
    api_timeout_s: float = 60.0
    """default.api.timeout.ms: for so long a commit is tried again that is refused for a reason that may pass."""
    max_partition_fetch_bytes: int = 1_048_576
    buffer_bytes_max: int = 67_108_864
    """Bytes of record batches that wait for the application; above it nothing is fetched."""
    delay_limits: DelayLimits = field(init=False)

    def __post_init__(self) -> None:
        """Raises ConfigurationError, with every mistake that was found."""
        if mistakes := _mistakes(self):
            raise ConfigurationError("; ".join(mistakes))
        limits = DelayLimits(max_revoke_delay_s=self.max_revoke_delay_s, rebalance_timeout_s=self.max_poll_interval_s)
        object.__setattr__(self, "delay_limits", limits)


def _mistakes(options: ConsumerOptions) -> list[str]:
    found = []
    if options.group_protocol not in PROTOCOLS:
        found.append(f"group.protocol {options.group_protocol!r}: one of {', '.join(PROTOCOLS)}")
    if options.auto_offset_reset not in RESETS:
        found.append(f"auto.offset.reset {options.auto_offset_reset!r}: one of {', '.join(RESETS)}")
    if unknown := [name for name in options.assignors if name not in ASSIGNOR_NAMES]:
        found.append(f"assignor {unknown[0]!r}: of {', '.join(ASSIGNOR_NAMES)}")
    if not options.assignors:
        found.append("partition.assignment.strategy names no assignor")
    if options.heartbeat_interval_s >= options.session_timeout_s:
        found.append("heartbeat.interval.ms must be below session.timeout.ms")
    if options.group_id is None and (options.group_instance_id or options.auto_commit_interval_s is not None):
        found.append("group.instance.id and automatic commits need a group.id")
    if options.enable_parallel_rebalance and options.group_id is None:
        found.append("enable.parallel.rebalance needs a group.id: what was done before a crash is committed there")
    above_0 = {
        "session.timeout.ms": options.session_timeout_s,
        "heartbeat.interval.ms": options.heartbeat_interval_s,
        "default.api.timeout.ms": options.api_timeout_s,
        "max_revoke_delay": options.max_revoke_delay_s,
        "buffer_bytes_max": options.buffer_bytes_max,
        "catch_up_lag_min": options.catch_up_lag_min,
    }
    return [*found, *common_mistakes(options, above_0)]
