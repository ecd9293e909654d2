"""The share session with one broker: what it is told, and was told (consumer/share_consumers.md rules 3-5).

A broker keeps a session for each member: which partitions it reads, and a number that the next request must have. The
locks of records were taken under a session, and end with it.

Source: ShareSessionHandler, ShareSessionCache; ShareSessionEpoch of ShareFetch and ShareAcknowledge.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.consumer.share_acknowledgements import AcknowledgeType
from proxy.wire.values import TopicPartition

OPEN_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = (1 << 31) - 1
"""Followed by 1."""

Acknowledgements = dict[TopicPartition, dict[int, AcknowledgeType]]
"""Partition -> offset -> what is said of it."""


@dataclass(slots=True, eq=False)
class ShareSession:
    """Of one member with one node, from its first request until the locks taken under it are gone."""

    node_id: int
    epoch: int = OPEN_EPOCH
    """Of the next request."""
    partitions: dict[TopicPartition, bytes] = field(default_factory=dict)
    """What the broker reads for it, each with its topic id."""
    ids: dict[TopicPartition, bytes] = field(default_factory=dict)
    """Topic ids of all that was ever read under it: acknowledgements may come late."""
    due: Acknowledgements = field(default_factory=dict)
    """Said and not sent."""
    under_way: Acknowledgements = field(default_factory=dict)
    """Sent and not answered."""
    is_urgent: bool = False
    """Somebody waits for what is due: it does not wait for the next fetch."""
    can_renew: bool = True
    """Whether the broker speaks the version that renews."""

    @property
    def is_open(self) -> bool:
        """Whether the broker has answered that there is one."""
        return self.epoch != OPEN_EPOCH

    def reopen(self) -> None:
        """The next request begins it anew; the broker keeps the locks that were taken under it."""
        self.epoch = OPEN_EPOCH
        self.partitions = {}

    def answered(self, partitions: dict[TopicPartition, bytes] | None = None) -> None:
        """The broker took the request; `partitions`: what it reads for it now, None: as before."""
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        if partitions is not None:
            self.partitions = partitions
            self.ids |= partitions

    def changes(
        self, wanted: dict[TopicPartition, bytes]
    ) -> tuple[dict[TopicPartition, bytes], dict[TopicPartition, bytes]]:
        """What to add and what to forget, so that the broker reads what is wanted; a topic made anew is both."""
        added = {each: topic_id for each, topic_id in wanted.items() if self.partitions.get(each) != topic_id}
        forgotten = {each: topic_id for each, topic_id in self.partitions.items() if wanted.get(each) != topic_id}
        return added, forgotten

    @property
    def has_renewals(self) -> bool:
        """Whether some of what is due renews."""
        return has_renewals(self.due)


def has_renewals(said: Acknowledgements) -> bool:
    """Whether a lock is to be renewed."""
    return any(AcknowledgeType.RENEW in each.values() for each in said.values())
