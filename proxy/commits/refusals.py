"""What a commit was refused for here, in the log: the member hears a code only."""

from __future__ import annotations

from collections.abc import Iterable

from proxy.commits.asked_commits import AskedCommit
from proxy.commits.services import CommitServices


def tell_refusals(services: CommitServices, group_id: str, found: Iterable[AskedCommit]) -> None:
    """Count what became of each partition; one line for each that was refused here for a reason."""
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
