"""A run with one outcome of each status, for tests of reports."""

from __future__ import annotations

from kafka_share_proxy.conformance.suite.building import build
from kafka_share_proxy.conformance.suite.cases import Case
from kafka_share_proxy.conformance.suite.exchanges import Exchange
from kafka_share_proxy.conformance.suite.outcomes import Outcome, RunReport, Status
from kafka_share_proxy.wire.codec import frames

from tests.support.scripted_peer import versions


async def _body(_run: object) -> None:
    """Check nothing."""


def _case(case_id: str) -> Case:
    return Case(case_id, f"The rule of {case_id} <holds>.", "KIP-932 & others", _body)


EXCHANGE = Exchange(
    18,
    0,
    frames.request(18, 0, 7, "c", build("ApiVersions"))[4:],
    frames.response(18, 0, 7, versions(Fetch=(4, 17)))[4:],
)
REPORT = RunReport(
    bootstrap="127.0.0.1:9092",
    release="4.3",
    started_at="2026-11-27T10:00:00+00:00",
    duration_s=3.5,
    outcomes=[
        Outcome(_case("first.a.passed"), Status.PASSED, 0.25),
        Outcome(_case("first.a.failed"), Status.FAILED, 0.5, "error\x00", "0 (NONE)", "3 <x>", [EXCHANGE]),
        Outcome(_case("second.a.skipped"), Status.SKIPPED, reason="Fetch is not offered"),
        Outcome(_case("second.a.differs"), Status.DIFFERS, 0.1, "an older rule (error)", "1", "2", [EXCHANGE]),
    ],
    missing={"views": "not shown"},
)
