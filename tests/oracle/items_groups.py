"""Items 52-70: membership, description, listing, deletion, and group ids of other types."""

from __future__ import annotations

import time
from typing import Any

from kafka_share_proxy.wire.errors import ErrorCode

from tests.oracle.items import item
from tests.support.raw import until
from tests.support.worlds import Member, World


@item(52)
def join(w: World) -> None:
    """A join gives a positive epoch, the heartbeat interval, and an assignment that may fill later."""
    t = w.topic()
    a = w.member(w.group())
    response = a.heartbeat(0, topics=[t.name], silent=True)
    assert response.error_code == 0
    assert response.member_id == a.member_id
    assert response.member_epoch > 0
    assert response.heartbeat_interval_ms == 5000
    assert response.assignment is not None
    _filled(a, {(t.topic_id, 0)})


def _filled(member: Member, expected: set[tuple[bytes, int]]) -> None:
    """Heartbeat until exactly these partitions are assigned."""

    def assigned() -> bool:
        if member.assigned != expected:
            member.heartbeat(silent=True)
        return member.assigned == expected

    until(assigned, f"the assignment of {member.member_id}", pause_s=0.1)


@item(53)
def missing_topic(w: World) -> None:
    """A topic that does not exist may be subscribed to; once it is created, it is assigned at a higher epoch."""
    name = w.name_of_topic("later")
    a = w.member(w.group())
    assert a.heartbeat(0, topics=[name], silent=True).error_code == 0
    assert a.assigned == set()
    before = a.member_epoch
    t = w.topic("later")
    _filled(a, {(t.topic_id, 0)})
    assert a.member_epoch > before


@item(54)
def spread(w: World) -> None:
    """Two members share three partitions so that their counts differ by at most one."""
    t = w.topic(partitions=3)
    g = w.group()
    a, b = w.member(g), w.member(g, "B")
    for member in (a, b):
        assert member.heartbeat(0, topics=[t.name], silent=True).error_code == 0

    def spread_out() -> bool:
        a.heartbeat(silent=True)
        b.heartbeat(silent=True)
        everything = {(t.topic_id, index) for index in range(3)}
        return a.assigned | b.assigned == everything and abs(len(a.assigned) - len(b.assigned)) <= 1

    until(spread_out, "an even assignment", pause_s=0.1)


@item(55)
def shared_partition(w: World) -> None:
    """One partition is given to both members."""
    t = w.topic()
    g = w.group()
    for name in ("A", "B"):
        w.member(g, name, topics=[t])


@item(56)
def leave(w: World) -> None:
    """A leaving member gets epoch -1, the other its partitions, and the same id may join again."""
    t = w.topic(partitions=2)
    g = w.group()
    a, b = w.member(g, topics=[t]), w.member(g, "B")
    b.heartbeat(0, topics=[t.name], silent=True)
    assert a.heartbeat(-1, follow=False).member_epoch == -1
    _filled(b, {(t.topic_id, 0), (t.topic_id, 1)})
    assert a.heartbeat(silent=True).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    a.assigned = set()
    assert a.heartbeat(0, topics=[t.name], silent=True).error_code == 0


@item(57)
def changed_subscription(w: World) -> None:
    """A new subscription gives partitions of its topics alone."""
    t, u = w.topic(), w.topic("u")
    a = w.member(w.group(), topics=[t])
    response = a.heartbeat(topics=[u.name], silent=True)
    assert response.assignment is not None
    _filled(a, {(u.topic_id, 0)})


@item(58)
def nothing_changed(w: World) -> None:
    """A heartbeat that changes nothing has no assignment."""
    t = w.topic()
    a = w.member(w.group(), topics=[t])
    response = a.heartbeat(silent=True)
    assert (response.error_code, response.member_epoch, response.assignment) == (0, a.member_epoch, None)
    assert response.heartbeat_interval_ms == 5000


@item(60)
def session_expired(w: World) -> None:
    """A member without heartbeats for the session timeout is gone; epoch 0 brings it back."""
    t = w.topic()
    a = w.member(w.group(session_ms="6000"), topics=[t])
    time.sleep(7.5)
    assert a.heartbeat(follow=False).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    a.assigned = set()
    a.join([t])


@item(61)
def epoch_ahead(w: World) -> None:
    """An epoch that is ahead is fenced; epoch 0 then brings the current one and the whole assignment."""
    t = w.topic()
    a = w.member(w.group(), topics=[t])
    assert a.heartbeat(a.member_epoch + 5, follow=False).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    before, a.assigned = a.member_epoch, set()
    response = a.heartbeat(0, topics=[t.name], silent=True)
    assert (response.error_code, response.member_epoch) == (0, before)
    assert a.assigned == {(t.topic_id, 0)}


@item(62)
def unknown_member(w: World) -> None:
    """An epoch of an unknown member or group gets an error that makes the client join again."""
    t = w.topic()
    stranger = w.member(w.group("nobody", start=None))
    assert stranger.heartbeat(5, follow=False, silent=True).error_code == (69 if w.name == "native" else 25)
    g = w.group()
    w.member(g, topics=[t])
    assert w.member(g, "B").heartbeat(5, follow=False).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@item(63)
def invalid_heartbeats(w: World) -> None:
    """Invalid heartbeats."""
    t = w.topic()
    a = w.member(w.group())
    for wrong in (
        {"epoch": 0},
        {"epoch": 0, "topics": []},
        {"epoch": -2},
        {"epoch": 0, "topics": [t.name], "rack": ""},
    ):
        response = a.heartbeat(follow=False, **wrong)
        assert response.error_code == ErrorCode.INVALID_REQUEST, wrong
    assert w.member("", "B").heartbeat(0, topics=[t.name], follow=False).error_code == ErrorCode.INVALID_REQUEST


@item(65)
def grown_topic(w: World) -> None:
    """New partitions of a topic are assigned on a later heartbeat."""
    t = w.topic()
    a = w.member(w.group(), topics=[t])
    t = w.raw.add_partitions(t, 3)
    _filled(a, {(t.topic_id, index) for index in range(3)})


# One id is of one type


def _on(w: World, group: str, api: str, version: int, **values: Any) -> Any:
    return w.raw.send_request(api, version, on=w.raw.on_coordinator(group), **values)


def _join_classic(w: World, group: str, member_id: str = "") -> Any:
    protocols = [{"name": "range", "metadata": b"\0\1\0\0\0\0\xff\xff\xff\xff"}]
    return _on(
        w, group, "JoinGroup", 7, group_id=group, session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
        member_id=member_id, protocol_type="consumer", protocols=protocols,
    )  # fmt: skip


@item(66)
def other_types_on_a_share_group(w: World) -> None:
    """An id of a share group, even an empty one, is refused to all other kinds of groups."""
    t = w.topic()
    a = w.member(w.group(), topics=[t])
    for _ in ("live", "empty"):
        assert _join_classic(w, a.group).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        beat = _on(
            w, a.group, "ConsumerGroupHeartbeat", 0, group_id=a.group, member_id="", member_epoch=0,
            subscribed_topic_names=[t.name], rebalance_timeout_ms=10_000, topic_partitions=[],
        )  # fmt: skip
        assert beat.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        _refuse_offsets(w, a.group, t.name)
        a.heartbeat(-1, follow=False, silent=True)


def _refuse_offsets(w: World, group: str, topic: str) -> None:
    part = {"partition_index": 0, "committed_offset": 3}
    committed = _on(
        w, group, "OffsetCommit", 8, group_id=group, generation_id_or_member_epoch=-1, member_id="",
        topics=[{"name": topic, "partitions": [part]}],
    )  # fmt: skip
    assert w.note("commit", committed)["topics"][0]["partitions"][0]["error_code"] == 69
    expected = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
    fetched = w.note("offsets", _on(w, group, "OffsetFetch", 8, groups=[expected]))
    part = fetched["groups"][0]["topics"][0]["partitions"][0]
    assert (part["error_code"], part["committed_offset"]) == (0, -1)
    deleted = _on(
        w, group, "OffsetDelete", 0, group_id=group, topics=[{"name": topic, "partitions": [{"partition_index": 0}]}]
    )
    assert w.note("delete offsets", deleted)["error_code"] == 69
    beat = _on(w, group, "Heartbeat", 4, group_id=group, generation_id=1, member_id="nobody")
    assert w.note("classic heartbeat", beat)["error_code"] == 25


@item(66, "b")
def share_group_on_a_classic_one(w: World) -> None:
    """An id of a classic group, live or with offsets alone, is refused to share groups."""
    t = w.topic()
    live, offsets = w.group("live", start=None), w.group("offsets", start=None)
    first = _join_classic(w, live)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert _join_classic(w, live, first.member_id).error_code == 0
    part = {"partition_index": 0, "committed_offset": 3}
    committed = _on(
        w, offsets, "OffsetCommit", 8, group_id=offsets, generation_id_or_member_epoch=-1, member_id="",
        topics=[{"name": t.name, "partitions": [part]}],
    )  # fmt: skip
    assert committed.topics[0].partitions[0].error_code == 0
    for group in (live, offsets):
        assert w.member(group).heartbeat(0, topics=[t.name], follow=False).error_code == ErrorCode.GROUP_ID_NOT_FOUND


@item(67)
def describe(w: World) -> None:
    """A share group is described with its members; an unknown one is not found; without members it is empty."""
    t = w.topic()
    a = w.member(w.group(), topics=[t])
    group = w.note("describe", _describe(w, a.group))["groups"][0]
    assert (group["error_code"], group["group_state"], group["assignor_name"]) == (0, "Stable", "simple")
    assert [member["member_id"] for member in group["members"]] == ["A"]
    assert group["members"][0]["assignment"]["topic_partitions"] == [
        {"topic_id": "t", "topic_name": "t", "partitions": [0]}
    ]
    a.heartbeat(-1, follow=False, silent=True)
    group = w.note("describe empty", _describe(w, a.group))["groups"][0]
    assert (group["error_code"], group["group_state"], group["members"]) == (0, "Empty", [])
    unknown = w.group("unknown", start=None)
    assert w.note("describe unknown", _describe(w, unknown))["groups"][0]["error_code"] == 69


def _describe(w: World, group: str) -> Any:
    return _on(w, group, "ShareGroupDescribe", 1, group_ids=[group])


@item(68)
def list_groups(w: World) -> None:
    """The type filter finds share groups in any spelling, and share groups alone."""
    t = w.topic()
    a = w.member(w.group(), topics=[t])
    for kind in ("Share", "share"):
        listed = w.raw.send_request("ListGroups", 5, states_filter=[], types_filter=[kind]).groups
        mine = [each for each in w.plain(listed) if each["group_id"] == "g"]
        assert w.note("listed", mine) == [
            {"group_id": "g", "protocol_type": "share", "group_state": "Stable", "group_type": "share"}
        ]
        assert {each.group_type for each in listed} == {"share"}
    for other in ({"types_filter": ["classic"]}, {"types_filter": [], "states_filter": ["Empty"]}):
        listed = w.raw.send_request("ListGroups", 5, **({"states_filter": []} | other)).groups
        assert a.group not in {each.group_id for each in listed}
    assert a.group in {each.group_id for each in w.raw.send_request("ListGroups", 4, states_filter=[]).groups}


@item(69)
def delete(w: World) -> None:
    """A group with members cannot be deleted; an empty one can, and then begins anew."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    a.acknowledge((t, 0, 0, 9, 1), epoch=-1)
    a.disconnect()
    assert _delete(w, a.group) == 68
    a.heartbeat(-1, follow=False, silent=True)
    assert _delete(w, a.group) == 0
    assert _describe(w, a.group).groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert _delete(w, a.group) == 69
    again = w.member(a.group, "B", topics=[t])
    assert again.take(t).acquired(t) == [(0, 9, 1)]


def _delete(w: World, group: str) -> int:
    response = _on(w, group, "DeleteGroups", 2, groups_names=[group])
    return int(w.note("delete", response)["results"][0]["error_code"])


@item(70)
def describe_as_classic(w: World) -> None:
    """DescribeGroups does not know a share group: "Dead", and not found where version 6 is served."""
    t = w.topic()
    a = w.member(w.group(), topics=[t])
    group = w.note("describe v5", _on(w, a.group, "DescribeGroups", 5, groups=[a.group]))["groups"][0]
    assert (group["error_code"], group["group_state"]) == (0, "Dead")
    offered = {api.api_key: api.max_version for api in w.raw.send_request("ApiVersions", 0).api_keys}
    if offered[15] >= 6:
        group = _on(w, a.group, "DescribeGroups", 6, groups=[a.group]).groups[0]
        assert (group.error_code, group.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
