"""Groups that change their type: the target responds as a native 4.3.0 that is not to migrate them online."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka_share_proxy.conformance.cluster_thread import running_cluster
from kafka_share_proxy.conformance.target.server import TargetOptions
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.brokers import Running
from tests.support.raw import Raw, until

pytestmark = pytest.mark.broker

DISABLED = {"group.consumer.migration.policy": "disabled"}
Trace = list[tuple[str, Any]]


@pytest.fixture
def kafka(running: Running) -> Cluster:
    return running.native(properties=DISABLED)


class Client:
    """One client that sends requests for one group and notes the codes."""

    def __init__(self, raw: Raw, group: str, topic: str) -> None:
        self._raw, self._group, self._topic = raw, group, topic
        self._on = raw.on_coordinator(group)
        self.trace: Trace = []
        until(lambda: not self.offsets().error_code, "the coordinator")

    def offsets(self) -> Any:
        groups = [{"group_id": self._group, "topics": None}]
        return self._raw.send_request("OffsetFetch", 8, on=self._on, groups=groups).groups[0]

    def send(self, what: str, api: str, version: int, **values: Any) -> Any:
        response = self._raw.send_request(api, version, on=self._on, group_id=self._group, **values)
        members = [each.error_code for each in getattr(response, "members", [])] if api == "LeaveGroup" else []
        self.trace.append((what, (ErrorCode(response.error_code).name, members)))
        return response

    def join(
        self, what: str, member_id: str = "", *, kind: str = "consumer", version: int = 9, names: str = "a"
    ) -> Any:
        protocols = [{"name": name, "metadata": b"\0\1\0\0\0\0\xff\xff\xff\xff"} for name in names]
        return self.send(
            what, "JoinGroup", version, member_id=member_id, protocol_type=kind, protocols=protocols,
            session_timeout_ms=30_000, rebalance_timeout_ms=30_000,
        )  # fmt: skip

    def beat(self, what: str, epoch: int) -> Any:
        topics = {"subscribed_topic_names": [self._topic], "rebalance_timeout_ms": 60_000, "topic_partitions": []}
        more: dict[str, Any] = topics if epoch >= 0 else {}
        return self.send(what, "ConsumerGroupHeartbeat", 1, member_id="modern", member_epoch=epoch, **more)

    def types(self, what: str) -> None:
        found = self._raw.send_request("ListGroups", 5, on=self._on, states_filter=[], types_filter=[]).groups
        self.trace.append((what, [each.group_type for each in found if each.group_id == self._group]))


def changes(raw: Raw, group: str, topic: str) -> Trace:
    """Let a classic group become one of KIP-848 and the other way round, with and without members."""
    client = Client(raw, group, topic)
    member = client.join("classic member without id").member_id
    generation = client.join("classic member", member).generation_id
    assigned = [{"member_id": member, "assignment": b""}]
    synced = {"member_id": member, "generation_id": generation, "protocol_type": "consumer", "protocol_name": "a"}
    client.send("classic assignment", "SyncGroup", 5, assignments=assigned, **synced)
    client.beat("a consumer joins the classic group", 0)
    client.beat("a consumer of the classic group", 2)
    client.beat("a consumer leaves the classic group", -1)
    client.send("the classic member stays", "Heartbeat", 4, member_id=member, generation_id=generation)
    client.types("a classic group")
    client.send("the classic member leaves", "LeaveGroup", 5, members=[{"member_id": member}])
    client.beat("a consumer joins the empty classic group", 0)
    client.types("a group of KIP-848")
    client.join("another protocol type at the consumers' group", kind="connect")
    client.join("no protocol at the consumers' group", names="")
    client.send("classic heartbeat of a consumer", "Heartbeat", 4, member_id="modern", generation_id=1)
    client.send("classic assignment of a consumer", "SyncGroup", 5, assignments=[], **{**synced, "member_id": "modern"})
    client.beat("the consumer leaves", -1)
    client.join("a classic member joins the empty group of KIP-848", version=3)
    client.types("a classic group again")
    return client.trace


def test_groups_change_their_type_while_they_are_empty(kafka: Cluster, fresh: Callable[[str], str]) -> None:
    topic, group = fresh("topic"), fresh("group")
    traces = []
    with running_cluster(TargetOptions(nodes=1)) as target:
        for bootstrap in (kafka.bootstrap, target.bootstrap):
            with Raw(bootstrap) as raw:
                raw.create_topic(topic)
                traces.append(changes(raw, group, topic))
    assert traces[1] == traces[0]
