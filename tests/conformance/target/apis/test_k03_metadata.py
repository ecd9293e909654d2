"""Nodes and topics, by name and by id."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_an_unknown_topic_is_created_for_the_next_request_if_the_client_allows() -> None:
    async with running_cluster() as cluster:
        caller = Caller(cluster)
        codes = [
            (await caller.query("Metadata", topics=[{"name": "t"}], allow_auto_topic_creation=each))
            .topics[0]
            .error_code
            for each in (False, True, False)
        ]
        assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


async def test_nodes_that_are_down_are_left_out_and_their_partitions_have_no_leader() -> None:
    async with running_cluster(2) as cluster:
        leader = cluster.create_topic("t").partitions[0].leader
        cluster.take_node_down(leader)
        response = await Caller(cluster, 3 - leader).query("Metadata", topics=None)
        partition = response.topics[0].partitions[0]
        assert [(each.node_id, each.port) for each in response.brokers] == [(3 - leader, 9003 - leader)]
        assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert (partition.isr_nodes, partition.offline_replicas) == ([], [leader])


async def test_topics_are_found_by_id() -> None:
    async with running_cluster() as cluster:
        topic_id = cluster.create_topic("t").topic_id
        topics = [{"topic_id": topic_id, "name": None}, {"topic_id": b"?" * 16, "name": None}]
        topic_entries = (await Caller(cluster).query("Metadata", topics=topics)).topics
        assert [(each.name, each.error_code) for each in topic_entries] == [
            ("t", 0),
            (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ]


async def test_authorized_operations_are_returned_on_request() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        plain = await caller.query("Metadata", topics=None)
        full = await caller.query("Metadata", topics=None, include_topic_authorized_operations=True)
        assert plain.topics[0].topic_authorized_operations == -(1 << 31)
        assert full.topics[0].topic_authorized_operations == 3576
