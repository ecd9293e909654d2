"""Every case of the conformance suite against every native release at hand, and each seeded fault.

    tests/run tests/long/conformance.py

Five minutes on two cores. It starts brokers of 3.9.1, 4.2.1, 4.3.0, 4.3.1 and 4.4.0, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from kafka_share_proxy.conformance.suite.all_cases import ALL_CASES
from kafka_share_proxy.conformance.suite.outcomes import Outcome, RunReport, Status
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.conformance.suite.test_whole_suite import run_all, wrong
from tests.support.brokers import QUICK, Running
from tests.support.worlds import warm_up

pytestmark = pytest.mark.broker

ASSIGNMENT = "group.share.assignment.interval.ms"
RELEASES = {
    "3.9.1": ({}, []),
    "4.2.1": ({key: value for key, value in QUICK.items() if key != ASSIGNMENT}, []),
    "4.3.0": (QUICK, []),
    "4.3.1": (QUICK, []),
    "4.4.0": (QUICK, ["share.version=2"]),
}
"""Release -> settings, features."""


@pytest.fixture(params=RELEASES)
def kafka(request: pytest.FixtureRequest, running: Running) -> Iterator[Cluster]:
    """One broker of a release."""
    properties, features = RELEASES[request.param]
    cluster = running.cluster(request.param, properties=properties, features=features)
    if request.param != "3.9.1":
        warm_up(cluster.bootstrap)
    yield cluster
    cluster.stop()


def test_a_release_passes_every_case_of_what_it_offers(kafka: Cluster) -> None:
    report = run_all(kafka.bootstrap)
    assert wrong(report) == {}
    assert differences(report) == expected_differences(report.release, report.outcomes)
    assert report.left_behind == ""


def differences(report: RunReport) -> list[str]:
    return [each.case.id for each in report.outcomes if each.status is Status.DIFFERS]


def expected_differences(release: str, outcomes: Sequence[Outcome]) -> list[str]:
    """Cases that declare a difference of this release, and were not skipped: each must really occur."""
    ran = {each.case.id for each in outcomes if each.status is not Status.SKIPPED}
    return [case.id for case in ALL_CASES.select() if release in case.differs and case.id in ran]
