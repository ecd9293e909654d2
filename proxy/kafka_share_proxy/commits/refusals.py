"""Log lines with the reason of a refused commit. The member receives only an error code."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_share_proxy.commits.requested_commits import RequestedCommit
from kafka_share_proxy.commits.services import CommitServices


def report_refusals(services: CommitServices, group_id: str, found: Iterable[RequestedCommit]) -> None:
    """Count the outcome of each partition, and log each partition that the proxy refused for a reason."""
    for asked in found:
        services.figures.took(asked.code, is_individual=asked.text is not None)
        if asked.reason:
            topic = asked.topic.name if asked.place is None else asked.place.topic
            services.services.notes(
                "commit-refused",
                group=group_id,
                topic=topic,
                partition=asked.entry.partition_index,
                reason=asked.reason,
            )
