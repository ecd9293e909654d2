"""Requests of share consumers, against a scripted peer."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.conformance.suite.capabilities import Capabilities
from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic, ClusterUnderTest
from kafka_share_proxy.conformance.suite.dialling import Dialling
from kafka_share_proxy.conformance.suite.expectations import Mismatch
from kafka_share_proxy.conformance.suite.share_members import LAST_EPOCH, ShareSessionMember, acquired, entry
from kafka_share_proxy.wire.definitions import registry

from tests.support.scripted_peer import response, scripted_peer

KNOWN = {78: (1, 2), 79: (1, 2)}
TOPIC = CaseTopic("t", b"\1" * 16, {0: 1, 1: 1})


class Peer:
    """A broker that keeps the requests and returns one error code."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.error = 0

    def __call__(self, api: str, _version: int, message: Any) -> Any:
        self.requests.append(message)
        return response(api, error_code=self.error)


async def exercised(steps: Any) -> Peer:
    peer = Peer()
    async with scripted_peer(peer) as address:
        run = CaseRun(ClusterUnderTest(Dialling([address]), KNOWN), Capabilities("4.3", KNOWN, {}))
        await steps(ShareSessionMember(run, "g", await run.connection(), "m"), peer)
        await run.aclose()
    return peer


async def test_epochs_follow_accepted_requests_only() -> None:
    async def steps(member: ShareSessionMember, peer: Peer) -> None:
        await member.fetch(TOPIC)
        peer.error = 42
        await member.fetch()
        peer.error = 0
        await member.acknowledge()
        await member.fetch(epoch=LAST_EPOCH)
        await member.fetch(epoch=-1)

    peer = await exercised(steps)
    assert [each.share_session_epoch for each in peer.requests] == [0, 1, 1, LAST_EPOCH, -1]


async def test_partitions_and_acknowledgements_of_a_topic_are_one_entry() -> None:
    async def steps(member: ShareSessionMember, _peer: Peer) -> None:
        await member.fetch(TOPIC, acks=[(TOPIC, 1, 0, 4, 1), (TOPIC, 1, 5, 6, [2, 3])])

    (request,) = (await exercised(steps)).requests
    (topic,) = request.topics
    batches = {
        p.partition_index: [list(b.acknowledge_types) for b in p.acknowledgement_batches] for p in topic.partitions
    }
    assert batches == {0: [], 1: [[1], [2, 3]]}


async def test_a_renewing_fetch_requests_nothing() -> None:
    async def steps(member: ShareSessionMember, _peer: Peer) -> None:
        await member.fetch(renew=True)

    (request,) = (await exercised(steps)).requests
    amounts = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records, request.batch_size)
    assert (amounts, request.is_renew_ack) == ((0, 0, 0, 0, 0), True)


def test_entries_are_found_by_topic_id_and_partition() -> None:
    response_class = registry.message("ShareFetchResponse")
    spans = [response_class.AcquiredRecords(first_offset=3, last_offset=5, delivery_count=2)]
    part = response_class.PartitionData(partition_index=1, acquired_records=spans)
    message = response_class(
        responses=[response_class.ShareFetchableTopicResponse(topic_id=TOPIC.topic_id, partitions=[part])]
    )
    assert acquired(message, TOPIC, 1) == [(3, 5, 2)]
    assert acquired(message, TOPIC, 0) == []
    with pytest.raises(Mismatch, match="partition 0"):
        entry(message, TOPIC, 0)
