"""Offsets in administrator responses: none before the first delivery has ended (items 123 and 126)."""

from __future__ import annotations

import time
from typing import Any

from tests.oracle.items import item
from tests.oracle.items_deliveries import alter_offsets, delete_offsets
from tests.support.raw import Topic, until
from tests.support.worlds import ACCEPT, RELEASE, Member, World

NOTHING = [[-1, 0, -1, 0]]
"""(start offset, leader epoch, lag, error): PartitionFactory's values for what is not initialised."""
LOCK_S = 3.0


def _reported(w: World, group: str, topic: Topic, label: str, *, of_all: bool = False) -> Any:
    """Note what DescribeShareGroupOffsets says of the topic's first partition, or of all the group has."""
    expected = None if of_all else [{"topic_name": topic.name, "partitions": [0]}]
    response = w.raw.send_request(
        "DescribeShareGroupOffsets", 1, on=w.raw.on_coordinator(group), groups=[{"group_id": group, "topics": expected}]
    ).groups[0]  # fmt: skip
    parts = [part for each in response.topics for part in each.partitions]
    return w.note(label, [(part.start_offset, part.leader_epoch, part.lag, part.error_code) for part in parts])


def _leave(member: Member) -> None:
    member.acknowledge(epoch=-1)
    member.disconnect()
    member.heartbeat(-1, follow=False, silent=True)


def _first_delivery(w: World, start: str, filled: int) -> tuple[Member, Topic, tuple[int, int]]:
    """A member that holds the first records of its group; no offset is reported until then."""
    t = w.topic()
    if filled:
        w.raw.produce(t, filled)
    group = w.group(start=start, lock_ms=str(int(LOCK_S * 1000)))
    assert _reported(w, group, t, "before the group exists") == NOTHING
    a = w.member(group, topics=[t])
    assert _reported(w, group, t, "before the first fetch") == NOTHING
    assert _reported(w, group, t, "before the first fetch, of all", of_all=True) == NOTHING
    first = filled if start == "latest" else 0
    if first == filled:
        for _ in range(3):
            assert a.fetch(t, wait_ms=500, silent=True).acquired(t) == []
        assert _reported(w, group, t, "with nothing to deliver") == NOTHING
        w.raw.produce(t, 3)
    ((first, last, _),) = a.take(t).acquired(t)
    assert _reported(w, group, t, "held by a member") == NOTHING
    return a, t, (first, last)


def _resets(part: str, start: str, filled: int) -> None:
    """Enter the story of one `share.auto.offset.reset` over an empty or a filled log."""

    def described_once_a_lock_has_ended(w: World) -> None:
        """No offset is reported before the first delivery has ended; deleted offsets are not reported, altered ones
        are.
        """
        a, t, (first, last) = _first_delivery(w, start, filled)
        until(lambda: _described_quietly(w, a.group, t) != NOTHING, "the end of the lock")
        assert _reported(w, a.group, t, "the lock has ended") == [[first, 0, last - first + 1, 0]]
        assert a.take(t).acquired(t) == [(first, last, 2)]
        a.acknowledge((t, 0, first, last, ACCEPT))
        _leave(a)
        assert delete_offsets(w, a.group, t)["error_code"] == 0
        assert _reported(w, a.group, t, "deleted") == NOTHING
        assert alter_offsets(w, a.group, t, 1)["error_code"] == 0
        assert _reported(w, a.group, t, "altered") == [[1, 0, last, 0]]
        b = w.member(a.group, "B", topics=[t])
        assert b.take(t).acquired(t) == [(1, last, 1)]
        assert _reported(w, a.group, t, "altered, held by a member") == [[1, 0, last, 0]]

    item(123, part)(described_once_a_lock_has_ended)


def _described_quietly(w: World, group: str, topic: Topic) -> Any:
    reported = _reported(w, group, topic, "")
    w.transcript.pop()
    return reported


for _letter, (_start, _filled) in zip(
    "bcdefg",
    [(start, filled) for start in ("latest", "earliest", "by_duration:PT1H") for filled in (0, 5)],
    strict=True,
):
    _resets(_letter, _start, _filled)


@item(123, "h")
def described_once_released(w: World) -> None:
    """A release ends the first delivery: the start offset is reported, and the whole log is left."""
    a, t, span = _first_delivery(w, "earliest", 5)
    a.acknowledge((t, 0, *span, RELEASE))
    until(lambda: _described_quietly(w, a.group, t) != NOTHING, "the release")
    assert _reported(w, a.group, t, "released") == [[0, 0, 5, 0]]


@item(123, "i")
def described_once_the_session_is_closed(w: World) -> None:
    """So does the end of the session."""
    a, t, _ = _first_delivery(w, "earliest", 5)
    _leave(a)
    until(lambda: _described_quietly(w, a.group, t) != NOTHING, "the release of what was held")
    assert _reported(w, a.group, t, "closed") == [[0, 0, 5, 0]]


@item(123, "j")
def nothing_described_after_a_session_without_records(w: World) -> None:
    """A session that got nothing leaves nothing to tell."""
    t = w.topic()
    a = w.member(w.group(start="latest"), topics=[t])
    for _ in range(3):
        a.fetch(t, wait_ms=500, silent=True)
    _leave(a)
    time.sleep(1)
    assert _reported(w, a.group, t, "closed") == NOTHING
