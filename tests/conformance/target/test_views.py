"""Views of the cluster in one process."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.target.topics import HostedTopic
from kafka_share_proxy.conformance.target.views import create_view, create_views, find_view, store_plan
from kafka_share_proxy.views.model.plans import Plan
from kafka_share_proxy.views.model.slots import RangeCut
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.records import Record
from kafka_share_proxy.wire.values import ZERO_UUID

from tests.support.target_caller import Caller, running_cluster, values


async def test_a_view_is_shown_before_it_is_created() -> None:
    async with running_cluster(nodes=3) as cluster:
        base = cluster.create_topic("t", 2)
        view = find_view(cluster, "__view.r3.t")
        assert isinstance(view, HostedTopic)
        assert (view.topic_id, cluster.topics.with_name("__view.r3.t")) == (ZERO_UUID, None)
        assert [each.base for each in view.partitions] == [base.partitions[index] for index in (0, 0, 0, 1, 1, 1)]
        assert create_view(cluster, "__view.r3.t") is find_view(cluster, "__view.r3.t")
        assert cluster.topics.with_name("__view.r3.t") is not None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t", None),
        ("__view.r1.t", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__view.pplan.t", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__view.r1024.t", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__view.r2.none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_only_a_valid_view_name_of_an_existing_topic_is_a_view(name: str, expected: ErrorCode | None) -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t", 10)
        assert find_view(cluster, name) == expected


async def test_a_plan_divides_the_partitions_of_its_views() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t", 2)
        plan = Plan("p1", (0, 1 << 30, 3 << 30))
        store_plan(cluster, plan)
        store_plan(cluster, plan)
        view = create_view(cluster, "__view.pp1.t")
        assert isinstance(view, HostedTopic)
        assert len(view.partitions) == 6
        caller = Caller(cluster)
        for number in range(30):
            await caller.produce("t", records.build_batch(0, [Record(b"k%d" % number, b"%d" % number)]))
        values_by_slot = [values((await caller.fetch(view.name, 0, partition=slot)).records) for slot in range(3)]
        cut = RangeCut(plan.starts)
        expected: list[list[str]] = [[], [], []]
        for number in range(30):
            expected[cut.slot_of(b"k%d" % number, number)].append(f"{number}")
        assert values_by_slot == expected
        assert all(values_by_slot)
        with pytest.raises(ValueError, match="a plan never changes"):
            store_plan(cluster, Plan("p1", (0, 5)))


async def test_a_view_follows_leaders_and_partitions_of_its_base() -> None:
    async with running_cluster(nodes=3) as cluster:
        base = cluster.create_topic("t")
        create_views(cluster, ["__view.s2.t", "t"])
        view = cluster.topics.by_name["__view.s2.t"]
        cluster.move_leader("t", 0, base.partitions[0].leader % 3 + 1)
        cluster.move_leader("__view.s2.t", 1, base.partitions[0].leader % 3 + 1)
        cluster.take_node_down(base.partitions[0].leader)
        cluster.add_partitions(base, [[1]])
        expected = [(each.leader, each.leader_epoch) for each in base.partitions for _ in range(2)]
        assert [(each.leader, each.leader_epoch) for each in view.partitions] == expected
        assert base.partitions[0].leader_epoch == 3


async def test_a_view_and_its_commits_end_with_the_base() -> None:
    async with running_cluster() as cluster:
        base = cluster.create_topic("t")
        assert await Caller(cluster).commit("g", "__view.r2.t", 3) == ErrorCode.NONE
        cluster.delete_topic("__view.r2.t")
        assert (base.views, base.partitions[0].slots) == ([], [])
        assert await Caller(cluster).commit("g", "__view.r2.t", 3) == ErrorCode.NONE
        with pytest.raises(ValueError, match="create its base 't' again"):
            cluster.recreate_topic("__view.r2.t")
        cluster.recreate_topic("t")
        assert cluster.topics.with_name("__view.r2.t") is None
        assert await Caller(cluster).committed("g", "__view.r2.t") == (0, -1)
