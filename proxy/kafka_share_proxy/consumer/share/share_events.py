"""Events from the application to a share consumer, next to `Subscribe` and `LeaveGroup` (consumer/README.md rule 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafka_share_proxy.consumer.events import LeaveGroup, Subscribe
from kafka_share_proxy.wire.values import TopicPartition


class AwaitAcknowledgements(NamedTuple):
    """Send the acknowledgements that are due. The result is partition -> error of the broker, or None."""

    call_id: int
    only: Mapping[TopicPartition, set[int]] | None = None
    """Offsets to wait for. None means all that are due or in flight."""


ShareApplicationEvent = Subscribe | LeaveGroup | AwaitAcknowledgements
