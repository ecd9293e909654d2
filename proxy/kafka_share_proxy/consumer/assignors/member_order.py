"""Order of members with static members first (AbstractPartitionAssignor.MemberInfo)."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_share_proxy.consumer.assignors.interface import Members


def static_members_first(member_ids: Iterable[str], members: Members) -> list[str]:
    def key(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return (instance_id is None, member_id if instance_id is None else instance_id)

    return sorted(member_ids, key=key)
