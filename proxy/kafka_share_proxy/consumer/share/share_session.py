"""State of the share session with one broker (consumer/share_consumers.md rules 3-5).

Source: ShareSessionHandler, ShareSessionCache; ShareSessionEpoch of ShareFetch and ShareAcknowledge.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.wire.values import TopicPartition

OPEN_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = (1 << 31) - 1

Acknowledgements = dict[TopicPartition, dict[int, AcknowledgeType]]


@dataclass(slots=True, eq=False)
class ShareSession:
    """Session of one member with one node."""

    node_id: int
    epoch: int = OPEN_EPOCH
    partitions: dict[TopicPartition, bytes] = field(default_factory=dict)
    """Partition -> topic id, of the partitions that the session reads."""
    ids: dict[TopicPartition, bytes] = field(default_factory=dict)
    """Topic ids of all partitions that were read. They stay, because acknowledgements may be sent late."""
    due: Acknowledgements = field(default_factory=dict)
    """Acknowledgements for the next request."""
    in_flight: Acknowledgements = field(default_factory=dict)
    is_urgent: bool = False
    """Due acknowledgements must not wait for the next fetch."""
    can_renew: bool = True
    """False if the broker does not support renewals (KIP-1222)."""

    @property
    def is_open(self) -> bool:
        return self.epoch != OPEN_EPOCH

    def reopen(self) -> None:
        """Open the session again. The broker keeps the locks."""
        self.epoch = OPEN_EPOCH
        self.partitions = {}

    def advance(self, partitions: dict[TopicPartition, bytes] | None = None) -> None:
        """Advance the epoch after a response. `partitions`: those that the session reads now, None if unchanged."""
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        if partitions is not None:
            self.partitions = partitions
            self.ids |= partitions

    def changes(
        self, readable: dict[TopicPartition, bytes]
    ) -> tuple[dict[TopicPartition, bytes], dict[TopicPartition, bytes]]:
        """Return the partitions to add and to forget. A recreated topic is in both."""
        added = {each: topic_id for each, topic_id in readable.items() if self.partitions.get(each) != topic_id}
        forgotten = {each: topic_id for each, topic_id in self.partitions.items() if readable.get(each) != topic_id}
        return added, forgotten

    @property
    def has_renewals(self) -> bool:
        return has_renewals(self.due)


def has_renewals(acks: Acknowledgements) -> bool:
    return any(AcknowledgeType.RENEW in each.values() for each in acks.values())
