"""Settings of one consumer, checked before any request. Names follow Kafka's, with the unit last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from kafka_share_proxy.consumer.client_options import ClientOptions, common_mistakes
from kafka_share_proxy.consumer.fetch.key_filter import KeyFilter
from kafka_share_proxy.consumer.groups.deadlines import DelayLimits
from kafka_share_proxy.consumer.option_checks import (
    ABOVE_0,
    TIME_ABOVE_0,
    TIME_FROM_0,
    Range,
    literal_values,
    option,
    types_hold,
)
from kafka_share_proxy.consumer.option_types import AssignorName, GroupProtocol, OffsetReset
from kafka_share_proxy.wire.errors import ProxyError

RESETS = literal_values(OffsetReset)
PROTOCOLS = literal_values(GroupProtocol)
ASSIGNOR_NAMES = literal_values(AssignorName)


class ConfigurationError(ProxyError):
    """Invalid settings, or a call that the settings do not allow. Raised before any request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions(ClientOptions):
    """Options of a consumer, fixed when it is opened."""

    group_instance_id: str | None = None
    """Instance id of a static member (KIP-345). None: a dynamic member."""
    group_protocol: GroupProtocol = "classic"
    assignors: Sequence[AssignorName] = ("range", "cooperative-sticky")
    """partition.assignment.strategy, for the classic protocol, in order of preference."""
    server_assignor: str | None = None
    """group.remote.assignor: the broker's assignor, for KIP-848 groups."""
    session_timeout_s: float = option(45.0, "session.timeout.ms", TIME_ABOVE_0)
    heartbeat_interval_s: float = option(3.0, "heartbeat.interval.ms", TIME_ABOVE_0)
    max_revoke_delay_s: float = option(math.inf, "max_revoke_delay", Range(above=0))
    auto_commit_interval_s: float | None = option(None, "auto.commit.interval.ms", TIME_FROM_0)
    """Interval of automatic commits in seconds. None: the application commits."""
    auto_offset_reset: OffsetReset = "latest"
    read_committed: bool = False
    enable_parallel_rebalance: bool = False
    """enable.parallel.rebalance (KIP-333): continue at the log end and read older records in a second flow."""
    catch_up_lag_min: int = option(1, "catch_up_lag_min", Range(above=0))
    """Minimum lag, in offsets, for the second flow."""
    allow_auto_create_topics: bool = False
    """allow.auto.create.topics: brokers that allow it create missing topics that a request names.

    Views do not need it.
    """
    key_filter: KeyFilter | None = None
    max_partition_fetch_bytes: int = option(1_048_576, "max.partition.fetch.bytes", ABOVE_0)
    buffer_bytes_max: int = option(67_108_864, "buffer_bytes_max", Range(above=0))
    """Maximum bytes of record batches that wait for the application. Above it no Fetch is sent."""
    delay_limits: DelayLimits = field(init=False)

    def __post_init__(self) -> None:
        """Raises ConfigurationError with every mistake."""
        if mistakes := _mistakes(self):
            raise ConfigurationError("; ".join(mistakes))
        object.__setattr__(self, "assignors", tuple(self.assignors))
        limits = DelayLimits(max_revoke_delay_s=self.max_revoke_delay_s, rebalance_timeout_s=self.max_poll_interval_s)
        object.__setattr__(self, "delay_limits", limits)


def _mistakes(options: ConsumerOptions) -> list[str]:
    common, problems = common_mistakes(options), list[str]()
    if not types_hold(options):
        return common
    if options.group_protocol not in PROTOCOLS:
        problems.append(f"group_protocol: group.protocol {options.group_protocol!r}: one of {', '.join(PROTOCOLS)}")
    if options.auto_offset_reset not in RESETS:
        problems.append(
            f"auto_offset_reset: auto.offset.reset {options.auto_offset_reset!r}: one of {', '.join(RESETS)}"
        )
    if unknown := [name for name in options.assignors if name not in ASSIGNOR_NAMES]:
        problems.append(f"assignors: assignor {unknown[0]!r}: of {', '.join(ASSIGNOR_NAMES)}")
    if not options.assignors:
        problems.append("assignors: partition.assignment.strategy names no assignor")
    if options.heartbeat_interval_s >= options.session_timeout_s:
        problems.append(
            f"heartbeat_interval_s={options.heartbeat_interval_s:g}: heartbeat.interval.ms must be below "
            f"session.timeout.ms (session_timeout_s={options.session_timeout_s:g})"
        )
    needs_group = {
        "group_instance_id": options.group_instance_id is not None,
        "auto_commit_interval_s": options.auto_commit_interval_s is not None,
        "enable_parallel_rebalance": options.enable_parallel_rebalance,
    }
    if options.group_id is None and any(needs_group.values()):
        problems += [f"{name} needs a group (group.id): say group=" for name, is_set in needs_group.items() if is_set]
    return [*problems, *common]
