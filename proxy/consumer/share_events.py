"""What an application tells a share consumer, besides `Subscribe` and `LeaveGroup` (consumer/README.md rule 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from proxy.consumer.events import LeaveGroup, Subscribe
from proxy.wire.values import TopicPartition


class AwaitAcknowledgements(NamedTuple):
    """Send what is due; the result is partition -> why the broker refused it, or None."""

    call_id: int
    only: Mapping[TopicPartition, set[int]] | None = None
    """Offsets to wait for; None: all that is due or under way."""


ShareApplicationEvent = Subscribe | LeaveGroup | AwaitAcknowledgements
