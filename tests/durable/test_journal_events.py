"""Events that a journal reports."""

import pytest
from kafka_share_proxy.durable.interfaces import JournalRefused
from kafka_share_proxy.durable.journal_events import NO_EVENTS, JournalEvents, report
from kafka_share_proxy.durable.producer_requests import Lost, Refused, Stored, TakenOver, WentBack
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.errors import ErrorCode


def test_journal_without_an_owner_reports_to_no_receiver() -> None:
    NO_EVENTS.need_view()
    NO_EVENTS.lost(-1, ErrorCode.UNKNOWN_SERVER_ERROR)
    NO_EVENTS.denied(0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    for call in (NO_EVENTS.checking, NO_EVENTS.went_back):
        call(0)


def test_outcomes_settle_the_promises_of_appends() -> None:
    """Appends of the journal's own, such as a keep-alive, have none."""
    stored, refused = Promise[None](), Promise[None]()
    report(NO_EVENTS, "t", 3, [Stored(stored), Refused(refused, ErrorCode.MESSAGE_TOO_LARGE), Stored(None)])
    assert stored.result() is None  # type: ignore[func-returns-value]  # it raises if the promise has failed
    with pytest.raises(JournalRefused, match="topic t refuses it") as caught:
        refused.result()
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_outcomes_of_a_partition_are_reported_to_its_owner() -> None:
    seen: list[object] = []
    events = JournalEvents(
        taken_over=lambda *arguments: seen.append(arguments),
        lost=lambda *arguments: seen.append(arguments),
        went_back=seen.append,
    )
    taken_over = TakenOver(5, 7, 1)
    report(events, "t", 3, [taken_over, Lost(ErrorCode.PRODUCER_FENCED), WentBack(0)])
    assert seen == [(3, taken_over), (3, ErrorCode.PRODUCER_FENCED), 3]
