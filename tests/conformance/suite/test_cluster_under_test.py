"""Versions and cleaning up of a cluster, against scripted peers."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.conformance.suite.cluster_under_test import ClusterUnderTest, SetUpFailed
from kafka_share_proxy.conformance.suite.dialling import Dialling
from kafka_share_proxy.conformance.suite.exchanges import Trail
from kafka_share_proxy.conformance.suite.expectations import NotOffered
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.values import Address

from tests.support.scripted_peer import response, scripted_peer

VERSIONS = {3: (0, 9), 1: (13, 17), 10: (0, 4), 19: (2, 7), 20: (1, 6), 42: (0, 2)}
NOWHERE = Address("127.0.0.1", 1)


class Peer:
    """A broker that notes what is deleted."""

    def __init__(self, create_error: int = 0) -> None:
        self.address = NOWHERE
        self.deleted: list[str] = []
        self._create_error = create_error

    def __call__(self, api: str, _version: int, message: Any) -> Any:
        if api == "CreateTopics":
            response_class = registry.message("CreateTopicsResponse")
            return response_class(
                topics=[response_class.CreatableTopicResult(error_code=self._create_error, error_message="no room")]
            )
        if api == "FindCoordinator":
            response_class = registry.message("FindCoordinatorResponse")
            return response_class(
                coordinators=[response_class.Coordinator(key="g", host=self.address.host, port=self.address.port)]
            )
        if api == "DeleteTopics":
            self.deleted += message.topic_names
        if api == "DeleteGroups":
            self.deleted += message.groups_names
        return response(api)


def test_versions_are_limited_by_both_sides_and_by_the_layout_of_cases() -> None:
    cluster = ClusterUnderTest(Dialling([NOWHERE]), VERSIONS)
    assert cluster.version("Metadata") == 9
    assert cluster.version("Metadata", 4) == 4
    with pytest.raises(NotOffered, match="offered from version 13, this case uses version 12"):
        cluster.version("Fetch")
    with pytest.raises(NotOffered, match="Produce is not offered"):
        cluster.version("Produce")


def test_names_are_those_of_one_run() -> None:
    first, second = (ClusterUnderTest(Dialling([NOWHERE]), VERSIONS) for _ in range(2))
    names = [first.name("a"), first.name("a"), second.name("a")]
    assert len(set(names)) == 3
    assert all(name.startswith("conformance-") for name in names)


async def test_a_refused_topic_is_named_with_the_brokers_reason() -> None:
    async with scripted_peer(Peer(create_error=44)) as address:
        cluster = ClusterUnderTest(Dialling([address]), VERSIONS)
        connection = await cluster.dialling.connect_bootstrap(Trail())
        with pytest.raises(SetUpFailed, match=r"POLICY_VIOLATION \(44\) no room"):
            await cluster.create_topic(connection, "t")
        await connection.aclose()


async def test_topics_and_groups_are_deleted_after_a_failure_too() -> None:
    peer = Peer()
    async with scripted_peer(peer) as address:
        peer.address = address
        cluster = ClusterUnderTest(Dialling([address]), VERSIONS)
        cluster.topics.add("t")
        cluster.groups.add("g")
        with pytest.raises(ZeroDivisionError):
            async with cluster.cleaned_up():
                raise ZeroDivisionError
    assert sorted(peer.deleted) == ["g", "t"]
    assert cluster.left_behind == ""


async def test_topics_and_groups_that_could_not_be_deleted_are_reported() -> None:
    cluster = ClusterUnderTest(Dialling([NOWHERE]), VERSIONS)
    async with cluster.cleaned_up():
        pass
    assert "cannot connect" in cluster.left_behind
