"""Common steps of share group tests, over `ports.World`: a group that reads from the start, and a holder."""

from __future__ import annotations

from typing import Any

from tests.support.ports import Member, World, acquired, entries
from tests.support.scripted_cluster import Topic

EARLIEST = {"share_auto_offset_reset": "earliest"}
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
"""Types of acknowledgements (KIP-932, KIP-1222)."""


def from_the_start(world: World) -> World:
    """Let group g begin with the first record."""
    world.configure("g", **EARLIEST)
    return world


def ten_records(world: World) -> Topic:
    """Return topic t with the offsets 0-9."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    return topic


def held(world: World, topic: Topic, name: str = "m1") -> Member:
    """Return a member that holds 0-9."""
    member = world.member(member_id=name)
    assert acquired(member.fetch(topic)) == [(0, 9, 1)]
    return member


def code(response: Any, topic: Topic, partition: int = 0) -> int:
    """Return the error code of one partition of a response."""
    return int(entries(response)[topic.topic_id, partition].error_code)


def start_offset(world: World, topic: Topic, group: str = "g") -> int:
    """Return where the share partition begins: everything before it is settled."""
    share = world.services.coordinator.share((group, topic.topic_id, 0))  # type: ignore[arg-type]  # equal to its key
    assert share is not None
    return share.partition.start_offset
