"""Progress of a stream, committed for a group, so that lag tools can see it (pipeline/README.md rule 20)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient, Deadline
from kafka_share_proxy.pipeline.kafka.group_commits import CommitsOfGroup, GroupHasMembers
from kafka_share_proxy.pipeline.source.log_reader import note_on_stderr
from kafka_share_proxy.wire.errors import ProxyError
from kafka_share_proxy.wire.values import TopicPartition

COMMIT_S = 5.0
"""Timeout of one commit in seconds: a stream must not wait long for its monitoring."""
PAUSE_S = 10.0
"""Seconds after a failed commit before the next."""


class MirroredProgress:
    """Commits of a stream's progress to a consumer group. A failed commit is logged once and retried."""

    def __init__(
        self,
        cluster: BlockingClusterClient,
        group: str,
        note: Callable[[str], None] = note_on_stderr,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._commits = CommitsOfGroup(cluster, group)
        self._group = group
        self._note = note
        self._now = now
        self._committed: Mapping[TopicPartition, int] = {}
        self._not_before = now()
        self._noted_reason = ""

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the progress, unless it is unchanged or the last commit failed a short time ago."""
        if not offsets or offsets == self._committed or self._now() < self._not_before:
            return
        try:
            self._commits.commit_offsets(offsets, Deadline(COMMIT_S))
        except ProxyError as error:
            self._not_before = self._now() + PAUSE_S
            self._note_once(_reason(error))
        else:
            self._committed, self._noted_reason = dict(offsets), ""

    def _note_once(self, reason: str) -> None:
        if reason != self._noted_reason:
            self._note(f"mirrorGroup={self._group} is behind: {reason}")
            self._noted_reason = reason


def _reason(error: ProxyError) -> str:
    if isinstance(error, GroupHasMembers):
        return "it has members, and only they may commit for it: name a group that no other program uses"
    return str(error)
