"""Fixtures for pytest: a Kafka cluster in the process of the tests.

`kafka_cluster` is a cluster for one test, `kafka_topic` a topic in it, `kafka_faults` its faults. For tests with
pytest-trio there is `async_kafka_cluster`. The marker `kafka_cluster` sets options of the cluster, such as
`@pytest.mark.kafka_cluster(nodes=1, seed=7)`, and the marker `kafka_topic` those of the topic.

Everything else is imported when a test uses a fixture, because every run of pytest loads this module.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterator

    from kafka_share_proxy.conformance.cluster_thread import KafkaCluster, KafkaFaults
    from kafka_share_proxy.conformance.target.controlled import ControlledTarget
    from kafka_share_proxy.conformance.target.server import TargetOptions


FINDINGS = pytest.StashKey[list[dict[str, Any]]]()


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    config.addinivalue_line("markers", "kafka_cluster(**options): options of the cluster in this process")
    config.addinivalue_line("markers", "kafka_topic(partitions=1, **configs): options of the fixture kafka_topic")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Show the findings with the output of a test that fails."""
    report = yield
    if call.when == "call" and report.failed:
        cluster = getattr(item, "funcargs", {}).get("kafka_cluster")
        findings = item.stash.get(FINDINGS, []) if cluster is None else cluster.findings()
        lines = [f"{finding['severity']} {finding['rule']}: {finding['detail']}" for finding in findings]
        if lines:
            report.sections.append(("Kafka clients", "\n".join(lines)))
    return report


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """A Kafka cluster of three nodes in this process, for one test."""
    from kafka_share_proxy.conformance.cluster_thread import running_cluster

    with running_cluster(_options(request)) as cluster:
        yield cluster
        _raise_failures(cluster.failures())


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_cluster: KafkaCluster) -> str:
    """A topic in `kafka_cluster`, named after the test."""
    return kafka_cluster.create_topic(_topic_name(request), **_of_marker(request, "kafka_topic"))


@pytest.fixture
def kafka_faults(kafka_cluster: KafkaCluster) -> KafkaFaults:
    """The faults of `kafka_cluster`."""
    from kafka_share_proxy.conformance.cluster_thread import KafkaFaults

    return KafkaFaults(kafka_cluster)


@pytest.fixture
async def async_kafka_cluster(request: pytest.FixtureRequest) -> AsyncIterator[ControlledTarget]:
    """A Kafka cluster of three nodes in the Trio loop of the test (pytest-trio)."""
    from kafka_share_proxy.conformance.judge import reports
    from kafka_share_proxy.conformance.target.controlled import open_controlled_target

    async with open_controlled_target(_options(request)) as server:
        yield server
        request.node.stash[FINDINGS] = reports.as_json(server.findings())["findings"]
        _raise_failures(server.failures)


def _options(request: pytest.FixtureRequest) -> TargetOptions:
    from kafka_share_proxy.conformance.target.server import TargetOptions

    return TargetOptions(**_of_marker(request, "kafka_cluster"))


def _of_marker(request: pytest.FixtureRequest, name: str) -> dict[str, Any]:
    marker = request.node.get_closest_marker(name)
    return {} if marker is None else dict(marker.kwargs)


def _topic_name(request: pytest.FixtureRequest) -> str:
    return re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:200]


def _raise_failures(failures: list[BaseException]) -> None:
    if failures:
        raise failures[0]
