"""Notes about acknowledgements for logs and metrics (R003-5, R003-9)."""

from __future__ import annotations

from kafka_share_proxy.client.notes import ConsumerNote
from kafka_share_proxy.client.share_notes import RECORDS_ACKNOWLEDGED, RECORDS_RENEWED, note_results
from kafka_share_proxy.consumer.events import ConsumerError
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.consumer.share.share_holds import AcknowledgementResult
from kafka_share_proxy.wire.values import TopicPartition

P0 = TopicPartition("p", 0)
ACCEPT, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RENEW


def test_each_type_is_counted_and_renewals_are_counted_by_record() -> None:
    notes: list[ConsumerNote] = []
    note_results(notes.append)(AcknowledgementResult(P0, {1: ACCEPT, 3: RENEW, 4: ACCEPT, 7: RENEW}, None, 5))
    shared = {"partition": "p-0", "error": None}
    assert notes == [
        ConsumerNote(RECORDS_ACKNOWLEDGED, {**shared, "type": "accept", "records": 2}),
        ConsumerNote(RECORDS_ACKNOWLEDGED, {**shared, "type": "renew", "records": 2}),
        ConsumerNote(RECORDS_RENEWED, {**shared, "offsets": (3, 7), "records": 2, "renewals": 5}),
    ]


def test_a_refusal_is_reported_with_its_reason() -> None:
    notes: list[ConsumerNote] = []
    note_results(notes.append)(AcknowledgementResult(P0, {1: ACCEPT}, ConsumerError("too late")))
    assert [note.facts["error"] for note in notes] == ["too late"]
