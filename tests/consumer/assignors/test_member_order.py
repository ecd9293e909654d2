"""The order of members."""

from __future__ import annotations

from kafka_share_proxy.consumer.assignors.member_order import static_members_first

from tests.consumer.assignors.groups import member


def test_static_members_come_first_by_instance_id() -> None:
    members = {
        "m2": member("a"),
        "m9": member("a", instance_id="i1"),
        "m1": member("a"),
        "m0": member("a", instance_id="i2"),
    }
    assert static_members_first(members, members) == ["m9", "m0", "m1", "m2"]
