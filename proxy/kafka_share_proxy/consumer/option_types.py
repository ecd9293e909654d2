"""Options as keyword arguments, for type checkers. A test keeps them equal to the fields of the dataclasses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from kafka_share_proxy.consumer.fetch.key_filter import KeyFilter

OffsetReset = Literal["earliest", "latest", "none"]
GroupProtocol = Literal["classic", "consumer"]
AssignorName = Literal["range", "roundrobin", "sticky", "cooperative-sticky", "weighted-sticky"]
AcknowledgementMode = Literal["implicit", "explicit"]
AcquireMode = Literal["batch_optimized", "record_limit"]


class ClientKeywords(TypedDict, total=False):
    """Types of the keyword arguments for ClientOptions."""

    rack: str | None
    max_poll_interval_s: float
    request_timeout_s: float
    api_timeout_s: float
    retry_backoff_s: float
    retry_backoff_max_s: float
    metadata_max_age_s: float
    rebootstrap_after_s: float
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_s: float


class ConsumerKeywords(ClientKeywords, total=False):
    """Types of the keyword arguments for ConsumerOptions."""

    group_instance_id: str | None
    group_protocol: GroupProtocol
    assignors: Sequence[AssignorName]
    server_assignor: str | None
    session_timeout_s: float
    heartbeat_interval_s: float
    max_revoke_delay_s: float
    auto_commit_interval_s: float | None
    auto_offset_reset: OffsetReset
    read_committed: bool
    enable_parallel_rebalance: bool
    catch_up_lag_min: int
    allow_auto_create_topics: bool
    key_filter: KeyFilter | None
    max_partition_fetch_bytes: int
    buffer_bytes_max: int


class ShareConsumerKeywords(ClientKeywords, total=False):
    """Types of the keyword arguments for ShareConsumerOptions."""

    acknowledgement_mode: AcknowledgementMode
    acquire_mode: AcquireMode
    max_poll_records: int
    held_records_max: int
