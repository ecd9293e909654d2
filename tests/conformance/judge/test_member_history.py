"""What is remembered of members."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.judge import member_history
from kafka_share_proxy.conformance.judge.member_history import MemberHistory
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.judged import JudgedClient, share_heartbeat, share_heartbeat_response


def test_the_former_epoch_is_stale_after_the_grace_period() -> None:
    member = MemberHistory(76, "g", "m", 1, epoch_at=10.0)
    member.set_epoch(2, 20.0)
    assert not member.is_stale(2, 30.0, 0.5)
    assert not member.is_stale(1, 20.4, 0.5)
    assert member.is_stale(1, 20.6, 0.5)
    assert member.is_stale(7, 20.1, 0.5)


def test_a_member_joins_leaves_and_is_removed() -> None:
    client = JudgedClient()
    client.send(share_heartbeat(0, ["t"]), share_heartbeat_response(1))
    member = client.judge.history.members.find("g", "m")
    assert member is not None
    assert (member.epoch, member.is_active, member.interval_ms) == (1, True, 5000)
    client.send(share_heartbeat(1), messages.ShareGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH))
    assert not member.is_active
    client.send(share_heartbeat(0, ["t"]), share_heartbeat_response(3))
    assert member.is_active
    client.send(share_heartbeat(-1), share_heartbeat_response(-1))
    assert member.has_left


def test_the_number_of_members_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_history, "MEMBERS_MAX", 2)
    client = JudgedClient()
    for group in ("a", "b", "c"):
        request = share_heartbeat(0, ["t"])
        request.group_id = group
        client.send(request, share_heartbeat_response(1))
    assert [key[0] for key in client.judge.history.members.members] == ["b", "c"]
