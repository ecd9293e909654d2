"""Fetch requests of single partitions, against a scripted peer."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.conformance.suite.capabilities import Capabilities
from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic, ClusterUnderTest
from kafka_share_proxy.conformance.suite.dialling import Dialling
from kafka_share_proxy.conformance.suite.partition_reads import fetch, fetched, read
from kafka_share_proxy.wire.definitions import registry

from tests.support.scripted_peer import scripted_peer

KNOWN = {1: (4, 17)}
TOPIC = CaseTopic("t", b"\1" * 16, {0: 1})


async def test_topics_are_named_by_name_or_id_as_the_version_requires() -> None:
    sent: list[Any] = []

    def respond(_api: str, _version: int, message: Any) -> Any:
        sent.append(message)
        response_class = registry.message("FetchResponse")
        topics = [
            response_class.FetchableTopicResponse(
                partitions=[response_class.PartitionData(partition_index=0, high_watermark=9)]
            )
        ]
        return response_class(responses=topics)

    async with scripted_peer(respond) as address:
        run = CaseRun(ClusterUnderTest(Dialling([address]), KNOWN), Capabilities("4.3", KNOWN, {}))
        on = await run.connection()
        assert (await read(run, TOPIC, offset=5, current_leader_epoch=3, on=on)).high_watermark == 9
        await fetch(run, TOPIC, fetched(0, 7), on=on, version=13, max_bytes=1)
        await run.aclose()
    first, second = sent
    assert (first.topics[0].topic, first.topics[0].partitions[0].fetch_offset) == ("t", 5)
    assert first.topics[0].partitions[0].current_leader_epoch == 3
    assert (bytes(second.topics[0].topic_id), second.max_bytes) == (TOPIC.topic_id, 1)
