"""Outcomes of cases."""

from __future__ import annotations

import pytest
import trio
from kafka_share_proxy.conformance.suite import runner
from kafka_share_proxy.conformance.suite.capabilities import Capabilities
from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import Body, Case
from kafka_share_proxy.conformance.suite.cluster_under_test import ClusterUnderTest, SetUpFailed
from kafka_share_proxy.conformance.suite.dialling import Dialling
from kafka_share_proxy.conformance.suite.expectations import NotOffered, equal
from kafka_share_proxy.conformance.suite.outcomes import SET_UP, Outcome, Status
from kafka_share_proxy.wire.values import Address

from tests.support.scripted_peer import scripted_peer, versions

NOWHERE = Address("127.0.0.1", 1)
KNOWN = {18: (0, 4), 1: (4, 11)}


async def outcome(body: Body, address: Address = NOWHERE, **fields: object) -> Outcome:
    case = Case("s.a.b", "A sentence.", "KIP-0", body, **fields)  # type: ignore[arg-type]
    cluster = ClusterUnderTest(Dialling([address]), KNOWN)
    return await runner.run_case(case, cluster, Capabilities("4.3", KNOWN, {}, {"share": "switched off"}))


async def nothing(_run: CaseRun) -> None:
    """Pass."""


async def wrong(_run: CaseRun) -> None:
    equal("number", 1, 2)


async def test_a_case_without_a_mismatch_passes() -> None:
    assert (await outcome(nothing)).status is Status.PASSED


@pytest.mark.parametrize(
    ("need", "reason"),
    [("share", "switched off"), ("Fetch:12", "Fetch is offered in versions 4 to 11"), ("Produce:3", "not offered")],
)
async def test_what_is_not_offered_is_skipped_with_its_reason(need: str, reason: str) -> None:
    case_outcome = await outcome(wrong, needs=(need,))
    assert case_outcome.status is Status.SKIPPED
    assert reason in case_outcome.reason


async def test_a_case_may_find_out_itself_that_something_is_missing() -> None:
    async def body(_run: CaseRun) -> None:
        raise NotOffered("no such thing")

    case_outcome = await outcome(body)
    assert (case_outcome.status, case_outcome.reason) == (Status.SKIPPED, "no such thing")


async def test_a_mismatch_fails_with_what_was_expected_and_seen() -> None:
    case_outcome = await outcome(wrong)
    assert (case_outcome.status, case_outcome.reason, case_outcome.expected, case_outcome.actual) == (
        Status.FAILED,
        "number",
        "2",
        "1",
    )


async def test_a_known_difference_of_a_release_is_no_failure() -> None:
    assert (await outcome(wrong, differs={"4.3": "it counts otherwise"})).status is Status.DIFFERS
    assert (await outcome(wrong, differs={"4.2": "it counts otherwise"})).status is Status.FAILED


async def test_a_case_is_bounded_in_time() -> None:
    async def body(_run: CaseRun) -> None:
        await trio.sleep_forever()

    case_outcome = await outcome(body, limit_s=0.05)
    assert (case_outcome.status, case_outcome.reason) == (Status.FAILED, "duration")


async def test_a_lost_connection_fails_the_case_and_shows_the_exchange() -> None:
    async def body(run: CaseRun) -> None:
        await run.request("ApiVersions")

    async with scripted_peer(lambda *_: None) as address:
        case_outcome = await outcome(body, address)
    assert case_outcome.status is Status.FAILED
    assert "closed the connection" in case_outcome.actual
    assert [each.name for each in case_outcome.exchanges] == ["ApiVersions v4"]


async def test_a_refused_set_up_fails_the_case_and_says_that_its_rule_was_not_tested() -> None:
    async def body(_run: CaseRun) -> None:
        raise SetUpFailed("cannot create a topic: INVALID_CONFIG")

    case_outcome = await outcome(body)
    assert (case_outcome.status, case_outcome.reason) == (Status.FAILED, SET_UP)
    assert case_outcome.actual == "cannot create a topic: INVALID_CONFIG"


async def test_a_response_that_lacks_an_entry_fails_the_case() -> None:
    async def body(run: CaseRun) -> None:
        equal("key", (await run.request("ApiVersions")).api_keys[3].api_key, 1)

    async with scripted_peer(lambda *_: versions(Fetch=(4, 11))) as address:
        case_outcome = await outcome(body, address)
    assert (case_outcome.status, case_outcome.reason) == (Status.FAILED, "shape of the response")
    assert "api_keys[3]" in case_outcome.expected


async def test_members_leave_after_a_failure_too() -> None:
    left = []

    async def body(run: CaseRun) -> None:
        async def leave() -> None:
            left.append(True)

        run.at_end(leave)
        equal("number", 1, 2)

    await outcome(body)
    assert left == [True]


async def test_a_run_returns_the_outcomes_in_the_order_of_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    delays = {"s.a.slow": 0.1, "s.a.quick": 0.0}

    async def discover(dialling: Dialling) -> tuple[ClusterUnderTest, Capabilities]:
        return ClusterUnderTest(dialling, KNOWN), Capabilities("4.3", KNOWN, {})

    async def run_case(case: Case, *_: object) -> Outcome:
        await trio.sleep(delays[case.id])
        return Outcome(case, Status.PASSED)

    monkeypatch.setattr(runner, "discover", discover)
    monkeypatch.setattr(runner, "run_case", run_case)
    cases, outcomes = [Case(each, "A sentence.", "KIP-0", nothing) for each in delays], []
    async with scripted_peer(lambda *_: versions()) as address:
        report = await runner.run_suite(Dialling([address]), cases, outcomes.append)
    assert [each.case.id for each in report.outcomes] == ["s.a.slow", "s.a.quick"]
    assert [each.case.id for each in outcomes] == ["s.a.quick", "s.a.slow"]
    assert (report.release, report.count(Status.PASSED), report.failed) == ("4.3", 2, [])
