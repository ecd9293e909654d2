"""Present troubles of a consumer."""

from __future__ import annotations

from kafka_share_proxy.consumer.requests import FailureKind, Lane, RequestFailure, UnsentRequest
from kafka_share_proxy.consumer.troubles import (
    COORDINATOR,
    TROUBLES_MAX,
    Trouble,
    TroubleKind,
    TroubleObserver,
    Troubles,
)
from kafka_share_proxy.wire.definitions import messages

from tests.consumer.managers import found_coordinator

CONNECTION, TOPIC, REQUEST, GROUP = (
    TroubleKind.CONNECTION,
    TroubleKind.TOPIC,
    TroubleKind.REQUEST,
    TroubleKind.GROUP,
)


def request(api: str, lane: Lane = Lane.DATA, node_id: int = 1) -> UnsentRequest:
    return UnsentRequest(
        sender=found_coordinator(), api=api, message=None, versions=(0, 0), timeout_s=1, lane=lane, node_id=node_id
    )


def test_a_trouble_is_present_from_its_report_until_its_end_and_the_observer_is_notified_of_both() -> None:
    troubles, notifications = Troubles(), list[tuple[str, Trouble]]()
    troubles.observer = TroubleObserver(
        lambda each: notifications.append(("+", each)), lambda each: notifications.append(("-", each))
    )
    troubles.report(TOPIC, "a", "topic 'a' does not exist", "Check its name")
    troubles.report(TOPIC, "a", "topic 'a' does not exist", "Check its name")
    assert troubles.has(TOPIC, "a")
    assert troubles.why() == "topic 'a' does not exist. Check its name"
    troubles.end(TOPIC, "a")
    troubles.end(TOPIC, "a")
    assert not troubles.is_any
    assert [sign for sign, _ in notifications] == ["+", "+", "-"]


def test_an_error_names_broken_connections_first_and_three_troubles_at_most() -> None:
    troubles = Troubles()
    assert troubles.why() == ""
    troubles.report(CONNECTION, 1, "cannot use node 1")
    for name in ("a", "b", "c"):
        troubles.report(TOPIC, name, f"topic {name}")
    assert troubles.why() == "cannot use node 1; topic c; topic b"


def test_a_success_ends_what_was_reported_before_it_and_keeps_what_it_reports_itself() -> None:
    troubles = Troubles()
    commit = request("OffsetCommit", Lane.COORDINATOR)
    assert commit.subject == ("OffsetCommit", None)
    troubles.report(REQUEST, commit.subject, "OffsetCommit of a-0: REQUEST_TIMED_OUT")
    before = troubles.reports
    troubles.report(REQUEST, commit.subject, "OffsetCommit of a-0: REQUEST_TIMED_OUT")
    troubles.on_outcome(commit, messages.OffsetCommitResponse(), before)
    assert troubles.is_any
    troubles.on_outcome(commit, messages.OffsetCommitResponse(), troubles.reports)
    assert not troubles.is_any


def test_any_response_of_the_coordinator_ends_the_trouble_that_it_is_not_available() -> None:
    troubles = Troubles()
    troubles.report(GROUP, COORDINATOR, "not available")
    troubles.on_outcome(request("Fetch"), messages.FetchResponse(), troubles.reports)
    assert troubles.is_any
    troubles.on_outcome(request("Heartbeat", Lane.COORDINATOR), messages.HeartbeatResponse(), troubles.reports)
    assert not troubles.is_any


def test_a_request_without_a_response_is_a_trouble_unless_its_connection_is_one() -> None:
    troubles = Troubles()
    troubles.on_outcome(request("Fetch"), RequestFailure(FailureKind.DISCONNECTED, "closed"), 0)
    assert not troubles.is_any
    troubles.on_outcome(request("Fetch"), RequestFailure(FailureKind.TIMED_OUT, "no response within 30 s"), 0)
    assert troubles.why() == "Fetch: no response within 30 s"


def test_the_troubles_that_are_kept_are_bounded() -> None:
    troubles = Troubles()
    for number in range(TROUBLES_MAX + 1):
        troubles.report(TOPIC, number, f"{number}")
    assert not troubles.has(TOPIC, 0)
    assert troubles.has(TOPIC, 1)
