"""Events of a share consumer for logs and metrics (proposal of renewals, R003-5 and R003-9)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafka_share_proxy.client.notes import ConsumerNote, Observe
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType

if TYPE_CHECKING:  # a consumer without share groups loads this module for its metrics
    from kafka_share_proxy.consumer.share.share_holds import AcknowledgementResult

SHARE_MEMBER_STATE = "share member state"
"""before, after, reason"""
RECORDS_ACKNOWLEDGED = "records acknowledged"
"""partition, type (accept, release, reject, renew), records, error: text, or None. To be counted for each type."""
RECORDS_RENEWED = "records renewed"
"""partition, offsets (the first and the last), records, renewals (of the one renewed most often), error. For logs: a
record that is renewed forever holds up the start offset of its partition.
"""

DELAY_IGNORED = "redelivery delay ignored"
"""partition. Sent once: a broker released a record without the named delay (consumer/share_consumers.md rule 17)."""

_log = logging.getLogger("kafka_share_proxy.requests")


def note_results(observe: Observe) -> Callable[[AcknowledgementResult], None]:
    """Return a callback that reports results of acknowledgements to `observe`."""
    is_delay_reported = False

    def note(result: AcknowledgementResult) -> None:
        nonlocal is_delay_reported
        if result.is_delay_ignored and not is_delay_reported:
            is_delay_reported = True
            observe(ConsumerNote(DELAY_IGNORED, {"partition": str(result.partition)}))
            _log.warning(
                "release(delay_s=...) has no effect on %s: its group is served by brokers, which have no delay. "
                "Serve the group in the proxy (share_groups.serve: local), or leave the delay out",
                result.partition,
            )
        partition, error = str(result.partition), None if result.error is None else str(result.error)
        for kind, count in sorted(Counter(result.types.values()).items()):
            facts = {"partition": partition, "type": kind.name.lower(), "records": count, "error": error}
            observe(ConsumerNote(RECORDS_ACKNOWLEDGED, facts))
        renewed = [offset for offset, kind in result.types.items() if kind is AcknowledgeType.RENEW]
        if renewed:
            facts = {
                "partition": partition,
                "offsets": (min(renewed), max(renewed)),
                "records": len(renewed),
                "renewals": result.renewals,
                "error": error,
            }
            observe(ConsumerNote(RECORDS_RENEWED, facts))

    return note
