"""Requests of a member of the group of proxies."""

from kafka_share_proxy.durable.group_member import GroupMember, LeavingMember, leave_request
from kafka_share_proxy.durable.member_errors import NotAMember
from kafka_share_proxy.wire.errors import ErrorCode


def member() -> GroupMember:
    return GroupMember("proxy-a:1", "share-state", 6.0, member_id="id", generation=3)


def test_requests_carry_the_identity_of_the_member() -> None:
    heartbeat, join, sync = member().heartbeat(), member().join(b"metadata"), member().sync(4, {"id": b"table"})
    for request in (heartbeat, join, sync):
        assert (request.group_id, request.member_id) == ("__proxy_owners", "id")
        assert request.group_instance_id == "proxy-a:1"
    assert (heartbeat.generation_id, sync.generation_id) == (3, 4)
    assert (join.session_timeout_ms, join.rebalance_timeout_ms) == (6000, 6000)
    assert [(each.name, each.metadata) for each in join.protocols] == [("share-state", b"metadata")]
    assert [(each.member_id, each.assignment) for each in sync.assignments] == [("id", b"table")]


def test_leave_group_names_members_by_id_and_by_name_if_they_are_static() -> None:
    (own,) = member().leave().members
    assert (own.member_id, own.group_instance_id, own.reason) == ("id", "proxy-a:1", "shutdown")
    (dynamic,) = leave_request([LeavingMember("other", "")], "its process has ended").members
    assert (dynamic.member_id, dynamic.group_instance_id) == ("other", None)


def test_fenced_member_joins_again_as_a_dynamic_member() -> None:
    fenced = member()
    assert isinstance(fenced.error(ErrorCode.FENCED_INSTANCE_ID), NotAMember)
    fenced.forget_membership()
    assert (fenced.instance, fenced.member_id, fenced.generation) == (None, "", -1)


def test_member_that_the_group_does_not_know_keeps_its_name() -> None:
    unknown = member()
    assert isinstance(unknown.error(ErrorCode.UNKNOWN_MEMBER_ID), NotAMember)
    assert unknown.instance == "proxy-a:1"
