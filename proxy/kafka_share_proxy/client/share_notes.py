"""Events of a share consumer for logs and metrics (proposal of renewals, R003-5 and R003-9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kafka_share_proxy.client.notes import ConsumerNote, Observe
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.consumer.share.share_holds import AcknowledgementResult

SHARE_MEMBER_STATE = "share member state"
"""before, after, reason"""
RECORDS_ACKNOWLEDGED = "records acknowledged"
"""partition, type (accept, release, reject, renew), records, error: text, or None. To be counted for each type."""
RECORDS_RENEWED = "records renewed"
"""partition, offsets (the first and the last), records, renewals (of the one renewed most often), error. For logs: a
record that is renewed forever holds up the start offset of its partition.
"""


def note_results(observe: Observe) -> Callable[[AcknowledgementResult], None]:
    def note(result: AcknowledgementResult) -> None:
        partition, error = str(result.partition), None if result.error is None else str(result.error)
        for kind, count in sorted(Counter(result.said.values()).items()):
            facts = {"partition": partition, "type": kind.name.lower(), "records": count, "error": error}
            observe(ConsumerNote(RECORDS_ACKNOWLEDGED, facts))
        renewed = [offset for offset, kind in result.said.items() if kind is AcknowledgeType.RENEW]
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
