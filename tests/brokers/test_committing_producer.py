"""Records and committed offsets become visible together; a later producer of the id fences the earlier one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from kafka_share_proxy.brokers.committing_producer import CommittingProducer, TransactionFailed
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.records.records import Record
from kafka_share_proxy.wire.values import TopicPartition

from tests.brokers.test_open_nodes import opened
from tests.support.raw import Raw, until

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("cluster", ["kafka_39", "kafka_43"])
def test_a_fenced_producer_commits_nothing(
    cluster: str, request: pytest.FixtureRequest, fresh: Callable[[str], str]
) -> None:
    kafka: Cluster = request.getfixturevalue(cluster)
    with Raw(kafka.bootstrap) as raw:
        topic, name, group = raw.create_topic(fresh("topic")), fresh("id"), fresh("group")
        place = TopicPartition(topic.name, 0)
        records = {place: [Record(b"k", b"v", timestamp=-1)]}

        async def main() -> None:
            nodes = opened(kafka)
            first, second = CommittingProducer(nodes, name, group), CommittingProducer(nodes, name, group)
            await first.identify()
            await first.commit(records, {place: (1, "")})
            await first.commit(records, {place: (2, "note")})
            await second.identify()
            with pytest.raises(TransactionFailed):
                await first.commit(records, {place: (3, "")})
            await nodes.aclose()
            await nodes.client.aclose()

        trio.run(main)

        def committed() -> tuple[int, str]:
            requested = {"group_id": group, "topics": [{"name": topic.name, "partition_indexes": [0]}]}
            response = raw.send_request(
                "OffsetFetch", 8, on=raw.on_coordinator(group), groups=[requested], require_stable=True
            )
            entry = response.groups[0].topics[0].partitions[0]
            return entry.committed_offset, entry.metadata

        until(lambda: committed() == (2, "note"), "the second commit")
