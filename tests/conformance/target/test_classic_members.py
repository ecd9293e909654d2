"""Protocols of classic members."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.classic_members import ClassicMember, common_protocols, select_protocol


def member(name: str, *protocols: str) -> ClassicMember:
    return ClassicMember(name, None, "", "", 1, 1, tuple((each, each.encode()) for each in protocols))


def test_the_protocol_with_the_most_votes_is_chosen() -> None:
    members = {
        each.member_id: each for each in (member("1", "a", "b"), member("2", "b", "a"), member("3", "b", "a", "c"))
    }
    assert common_protocols(members.values()) == {"a", "b"}
    assert select_protocol(members) == "b"
    assert members["1"].metadata("b") == b"b"
