"""Fetch requests of one or several partitions, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic
from kafka_share_proxy.conformance.suite.connection import PeerConnection

MAX_BYTES = 1 << 20


def fetched(partition: int = 0, offset: int = 0, **fields: Any) -> dict[str, Any]:
    """Return a partition of a Fetch request."""
    return {"partition": partition, "fetch_offset": offset, "partition_max_bytes": MAX_BYTES} | fields


async def fetch(
    run: CaseRun,
    topic: CaseTopic,
    *partitions: dict[str, Any],
    on: PeerConnection | None = None,
    version: int | None = None,
    **fields: Any,
) -> Any:
    """Send a Fetch of partitions of one topic, by default of partition 0 from offset 0, without waiting."""
    values: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": MAX_BYTES, "session_epoch": -1} | fields
    listed: Sequence[dict[str, Any]] = partitions or (fetched(),)
    topic_fields = {"topic": topic.name} if version is None or version < 13 else {"topic_id": topic.topic_id}
    values.setdefault("topics", [topic_fields | {"partitions": list(listed)}])
    return await run.request("Fetch", on or await run.leader(topic), version, **values)


async def read(run: CaseRun, topic: CaseTopic, *, partition: int = 0, offset: int = 0, **fields: Any) -> Any:
    """Return the partition of the response to a Fetch from this offset."""
    inner = {name: fields.pop(name) for name in list(fields) if name in PARTITION_FIELDS}
    response = await fetch(run, topic, fetched(partition, offset, **inner), **fields)
    return response.responses[0].partitions[0]


PARTITION_FIELDS = {"current_leader_epoch", "last_fetched_epoch", "log_start_offset", "partition_max_bytes"}
