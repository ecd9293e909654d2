"""Events that a journal reports."""

from kafka_share_proxy.durable.journal_events import NO_EVENTS
from kafka_share_proxy.wire.errors import ErrorCode


def test_journal_without_an_owner_reports_to_no_receiver() -> None:
    NO_EVENTS.need_view()
    NO_EVENTS.lost(-1, ErrorCode.UNKNOWN_SERVER_ERROR)
    NO_EVENTS.denied(0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    for report in (NO_EVENTS.checking, NO_EVENTS.went_back):
        report(0)
