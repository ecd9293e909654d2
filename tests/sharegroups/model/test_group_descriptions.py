"""Entries of ShareGroupDescribe responses."""

from __future__ import annotations

from kafka_share_proxy.sharegroups.model.group import GroupDescription, MemberDescription
from kafka_share_proxy.sharegroups.model.group_descriptions import described_group

KNOWN, DELETED = b"a" * 16, b"b" * 16


def test_assigned_topics_are_named_in_the_order_of_their_ids_and_deleted_ones_have_no_name() -> None:
    member = MemberDescription(
        member_id="m", rack_id=None, member_epoch=3, client_id="c", client_host="h", topics=("orders",),
        assignment={DELETED: (2,), KNOWN: (0, 1)},
    )  # fmt: skip
    group = GroupDescription(
        group_id="g", state="Stable", epoch=4, assignment_epoch=3, assignor="simple", members=(member,)
    )
    entry = described_group(group, 8, lambda topic_id: "orders" if topic_id == KNOWN else "")
    (described,) = entry.members
    topics = [(t.topic_id, t.topic_name, t.partitions) for t in described.assignment.topic_partitions]
    assert topics == [(KNOWN, "orders", [0, 1]), (DELETED, "", [2])]
    assert (entry.group_epoch, entry.assignment_epoch, entry.authorized_operations) == (4, 3, 8)
