"""Every case against real brokers: native 3.9.1, and the proxy in front of it. Other releases: tests/long."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from kafka_share_proxy.conformance.suite.all_cases import ALL_CASES
from kafka_share_proxy.conformance.suite.dialling import Dialling
from kafka_share_proxy.conformance.suite.outcomes import RunReport, Status
from kafka_share_proxy.conformance.suite.runner import run_suite
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.support.raw import Raw, address, until

pytestmark = pytest.mark.broker


def run_all(bootstrap: str) -> RunReport:
    """Run every case and return the report."""
    return trio.run(partial(run_suite, Dialling([address(bootstrap)]), ALL_CASES.select(), lambda _: None))


def wrong(report: RunReport) -> dict[str, str]:
    return {each.case.id: f"{each.reason}: {each.expected}, {each.actual}" for each in report.failed}


def left_over(bootstrap: str) -> set[str]:
    """Return topics and groups of runs, others included: a seeded fault may keep its run from deleting them."""
    with Raw(bootstrap) as raw:
        topics = raw.send_request("Metadata", 12, topics=None).topics
        groups = raw.send_request("ListGroups", 4).groups
    names = [*(each.name for each in topics), *(each.group_id for each in groups)]
    return {name for name in names if "conformance-" in name}


def test_kafka_39_passes_every_case_of_what_it_offers(kafka_39: Cluster) -> None:
    earlier = left_over(kafka_39.bootstrap)
    report = run_all(kafka_39.bootstrap)
    assert wrong(report) == {}
    assert report.release == "3.9"
    assert report.count(Status.PASSED) >= 690
    assert {each.case.suite for each in report.outcomes if each.status is Status.SKIPPED} >= {"share-groups", "views"}
    assert report.left_behind == ""
    until(lambda: left_over(kafka_39.bootstrap) <= earlier, "the deletion of topics and groups")


def test_the_proxy_passes_every_case_of_what_it_offers(proxy_39_quick: Front) -> None:
    report = run_all(proxy_39_quick.bootstrap)
    assert wrong(report) == {}
    assert report.release == "proxy on 3.9"
    assert set(report.missing) == {"dead-letters", "several-nodes"}
    assert report.count(Status.PASSED) >= 1000
    assert [each.case.id for each in report.outcomes if each.status is Status.DIFFERS] == [
        "share-groups.membership.unknown-group"
    ]
