"""Every case of the suite against the cluster in one process, both in this process."""

from __future__ import annotations

import trio
from kafka_share_proxy.conformance.suite.all_cases import ALL_CASES
from kafka_share_proxy.conformance.suite.dialling import Dialling
from kafka_share_proxy.conformance.suite.outcomes import RunReport, Status
from kafka_share_proxy.conformance.suite.runner import run_suite
from kafka_share_proxy.conformance.target.server import open_target
from kafka_share_proxy.wire.values import Address

NOT_SERVED = {
    "AlterClientQuotas",
    "AlterPartitionReassignments",
    "AlterUserScramCredentials",
    "CreateAcls",
    "DeleteAcls",
    "DescribeAcls",
    "DescribeClientQuotas",
    "DescribeDelegationToken",
    "DescribeLogDirs",
    "DescribeQuorum",
    "DescribeUserScramCredentials",
    "ElectLeaders",
    "ExpireDelegationToken",
    "GetTelemetrySubscriptions",
    "ListPartitionReassignments",
    "PushTelemetry",
    "RenewDelegationToken",
    "StreamsGroupDescribe",
}
OTHER_VERSIONS = [
    "apiversions.layout.DeleteGroups.v3",
    "apiversions.layout.Fetch.v18",
    "apiversions.layout.InitProducerId.v6",
    "apiversions.layout.ListOffsets.v11",
    "apiversions.versions.v5",
    "produce-fetch.fetch.version-18",
]
"""Cases of later versions, which the target does not serve."""
CASES_MIN = 975
"""Cases that the target passes at least."""
LIMIT_S = 120.0
"""Seconds that the run may take on a busy machine: 10 s on an idle one."""


async def run_all() -> tuple[RunReport, list[BaseException]]:
    with trio.fail_after(LIMIT_S):
        async with open_target() as server:
            bootstrap = [Address(host, port) for host, port in server.cluster.addresses.values()]
            report = await run_suite(Dialling(bootstrap), ALL_CASES.select(), lambda _: None)
            return report, server.failures


async def test_the_target_passes_every_case_of_what_it_offers() -> None:
    report, failures = await run_all()
    assert {each.case.id: f"{each.reason}: {each.expected}, {each.actual}" for each in report.failed} == {}
    assert failures == []
    assert report.left_behind == ""
    assert report.count(Status.DIFFERS) == 0
    assert report.count(Status.PASSED) >= CASES_MIN
    skipped = [each for each in report.outcomes if each.status is Status.SKIPPED]
    assert set(report.missing) == {"short-locks", "dead-letters", "key-order", "redelivery-delay"}
    reasons = {each.reason for each in skipped} - set(report.missing.values())
    assert {reason.removesuffix(" is not offered") for reason in reasons if " in versions " not in reason} == NOT_SERVED
    assert sorted(each.case.id for each in skipped if " in versions " in each.reason) == OTHER_VERSIONS
