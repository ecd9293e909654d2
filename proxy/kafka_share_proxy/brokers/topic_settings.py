"""Settings of an internal topic, and what they mean for the records in it (durable/README.md rules 35 to 38)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

POLICY = "cleanup.policy"
COMPACT, DELETE = "compact", "delete"
MESSAGE_BYTES = "max.message.bytes"
IN_SYNC = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
DELETE_RETENTION = "delete.retention.ms"
RETENTION_MS, RETENTION_BYTES = "retention.ms", "retention.bytes"
REQUESTED_SETTINGS = (POLICY, MESSAGE_BYTES, IN_SYNC, UNCLEAN, DELETE_RETENTION, RETENTION_MS, RETENTION_BYTES)
DELETE_RETENTION_MIN_MS = 600_000
"""Minimum retention of tombstones: longer than reading the topic takes. A reader that misses a tombstone keeps what was
deleted.
"""
SAFE_REPLICAS = 3
"""Minimum number of replicas with which `min.insync.replicas` can be above 1 while one broker is away."""


class TopicSettings(NamedTuple):
    """Settings of one topic as a broker reported them."""

    topic: str
    server: str
    """Broker address to name in commands."""
    values: Mapping[str, str]
    """Settings that the broker reported, by name."""
    unknown: str = ""
    """Reason why the settings could not be read. Empty if they were."""
    replicas: int = 0
    """Lowest number of replicas of a partition. 0 if it is not known."""
    excess_partitions: int = 0

    def number(self, name: str) -> int | None:
        """Return the value of a numeric setting. None if it was not reported."""
        value = self.values.get(name, "")
        return int(value) if value.removeprefix("-").isdecimal() and value.isascii() else None

    @property
    def unsafe(self) -> str:
        """Return why the topic loses confirmed records, with the command that corrects it. Empty if it does not."""
        policy = self.values.get(POLICY)
        if policy is None or policy == COMPACT:
            return ""
        return (
            f"topic {self.topic} has {POLICY}={policy or '(empty)'} and must have {COMPACT}: "
            f"{self._consequence(policy)}. Correct it with: {self._command(POLICY, COMPACT)}. "
            "Records that are still in the topic are kept and "
            "served then; those that were deleted are lost"
        )

    def _consequence(self, policy: str) -> str:
        if DELETE not in policy:
            return "the topic grows without bound"
        limits = [
            f"{words} ({name}={self.values[name]})"
            for name, words in ((RETENTION_MS, "by age"), (RETENTION_BYTES, "by size"))
            if (self.number(name) or -1) >= 0
        ]
        if not limits:
            return "brokers do not keep the last record of each key"
        return f"brokers delete what is stored in it {' and '.join(limits)}"

    def risks(self) -> dict[str, str]:
        """Return name -> risk of stored records or the service, with the correcting command."""
        return dict(self._risks())

    def _risks(self) -> Iterator[tuple[str, str]]:
        if self.unknown:
            yield (
                "settings-unknown",
                f"the settings of topic {self.topic} are not known ({self.unknown}): if its {POLICY} is not {COMPACT}, "
                "what is stored will be lost. Grant DESCRIBE_CONFIGS on the topic to the proxy's own identity",
            )
        if self.excess_partitions:
            yield (
                "partitions",
                f"topic {self.topic} has {self.excess_partitions} partitions too many: this proxy continues, and "
                "refuses the topic after its next start. Partitions cannot be removed",
            )
        in_sync, replicas = self.number(IN_SYNC), self.replicas
        if in_sync == 1 and replicas >= SAFE_REPLICAS:
            yield (
                "min-insync-replicas",
                f"topic {self.topic} has {IN_SYNC}=1 with {replicas} replicas: confirmed records may be on one broker "
                f"only, and are lost with it. Correct it with: {self._command(IN_SYNC, str(replicas - 1))}",
            )
        if in_sync is not None and in_sync > replicas > 0:
            yield (
                "min-insync-replicas",
                f"topic {self.topic} has {IN_SYNC}={in_sync} with {replicas} replicas: brokers refuse every append. "
                f"Correct it with: {self._command(IN_SYNC, str(max(1, replicas - 1)))}",
            )
        if self.values.get(UNCLEAN) == "true":
            yield (
                "unclean-leader-election",
                f"topic {self.topic} has {UNCLEAN}=true: a replica without the last confirmed records may become "
                f"leader. Correct it with: {self._command(UNCLEAN, 'false')}",
            )
        retention = self.number(DELETE_RETENTION)
        if retention is not None and retention < DELETE_RETENTION_MIN_MS:
            yield (
                "delete-retention",
                f"topic {self.topic} has {DELETE_RETENTION}={retention}: what was deleted may come back where the "
                f"topic is being read. Correct it with: {self._command(DELETE_RETENTION, '86400000')}",
            )

    def _command(self, name: str, value: str) -> str:
        return (
            f"kafka-configs.sh --bootstrap-server {self.server} --alter --entity-type topics "
            f"--entity-name {self.topic} --add-config {name}={value}"
        )
