"""Log lines with the reason of a refused commit."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_share_proxy.commits.requested_commits import RequestedCommit
from kafka_share_proxy.commits.services import CommitServices


def report_refusals(services: CommitServices, group_id: str, commits: Iterable[RequestedCommit]) -> None:
    for requested in commits:
        services.figures.count(requested.code, is_individual=requested.text is not None)
        if requested.reason:
            topic = requested.topic.name if requested.topic_partition is None else requested.topic_partition.topic
            services.base.notes(
                "commit-refused",
                group=group_id,
                topic=topic,
                partition=requested.entry.partition_index,
                reason=requested.reason,
            )
