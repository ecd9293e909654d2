"""Lists of groups of every type."""

from __future__ import annotations

from tests.support.target_caller import Caller, running_cluster


async def test_groups_are_listed_with_type_and_state() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        await caller.only_member("a")
        await caller.join_consumer("b", "m", "t")
        await caller.query(
            "ShareGroupHeartbeat", group_id="c", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
        )
        groups = (await caller.query("ListGroups")).groups
        assert [(g.group_id, g.group_type, g.group_state) for g in groups] == [
            ("a", "classic", "Stable"),
            ("b", "consumer", "Stable"),
            ("c", "share", "Stable"),
        ]
        groups = (await caller.query("ListGroups", types_filter=["Share", "CLASSIC"], states_filter=["stable"])).groups
        assert [each.group_id for each in groups] == ["a", "c"]
