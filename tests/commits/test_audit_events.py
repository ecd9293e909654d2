"""Individual commits as audit events: one for each partition, when it is stored."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.audit.stream import Audit
from kafka_share_proxy.commits import audit_events
from kafka_share_proxy.commits.audit_events import CommitAudit
from kafka_share_proxy.loop.promise import PROCESS
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support import audit_lines
from tests.support.commit_world import CommitWorld


class AuditedWorld(CommitWorld):
    def __init__(self) -> None:
        super().__init__()
        self.audit = Audit(self.timers, 1000)
        self.services.audit = CommitAudit(self.audit, PROCESS)

    def events(self) -> list[dict[str, Any]]:
        return audit_lines.waiting(self.audit.log)

    def reported(self) -> list[tuple[Any, ...]]:
        names = ("partition", "offset", "previous", "ranges", "ranges_total", "stored_ranges")
        return [tuple(event[name] for name in names) for event in self.events()]


@pytest.fixture
def world() -> AuditedWorld:
    return AuditedWorld()


def test_a_commit_is_reported_with_what_it_changed(world: AuditedWorld) -> None:
    """The ranges that grew as they are now, both ends included."""
    world.begin(43, "45-47,50-50")
    world.events()
    world.commit(43, "ic/1;48-49,60-61", member_id="m1", generation_id_or_member_epoch=1)
    (event,) = world.events()
    assert (event["kind"], event["topic"], event["group"], event["member"]) == ("commit", "t", "g", "m1")
    assert (event["offset"], event["previous"], event["ranges"]) == (43, 43, [[45, 50], [60, 61]])
    assert (event["ranges_total"], event["stored_ranges"]) == (2, 2)


def test_a_commit_that_moves_the_committed_offset(world: AuditedWorld) -> None:
    world.begin(43, "45-47")
    world.events()
    world.commit(43, "ic/1;43-44")
    assert world.reported() == [(0, 48, 43, [], 0, 0)]


@pytest.mark.states("topic", "overflow")
def test_a_commit_is_reported_when_it_is_stored(world: AuditedWorld) -> None:
    world.begin(43, "45-47")
    world.events()
    world.journal.slow = True
    world.commit(43, "ic/1;50-51")
    assert world.reported() == []
    world.journal.confirm()
    assert world.reported() == [(0, 43, 43, [[50, 51]], 1, 2)]


@pytest.mark.states("topic", "overflow")
def test_a_commit_that_is_not_stored_is_not_reported(world: AuditedWorld) -> None:
    world.begin(43, "45-47")
    world.events()
    world.journal.slow = True
    world.commit(43, "ic/1;50-51")
    world.journal.refuse(ErrorCode.NOT_COORDINATOR)
    assert world.reported() == []


def test_each_partition_of_a_request_is_a_separate_event(world: AuditedWorld) -> None:
    """Also where a part of the request is refused."""
    world.begin(43, "45-47")
    world.events()
    world.commit_many([("t", 0, 43, "ic/1;50-51"), ("t", 1, 7, "ic/1;9-9"), ("t", 2, 7, "ic/1;nonsense")])
    assert [each[:4] for each in world.reported()] == [(0, 43, 43, [[50, 51]]), (1, 7, -1, [[9, 9]])]


def test_ranges_of_one_event_are_bounded(world: AuditedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their number is reported all the same."""
    monkeypatch.setattr(audit_events, "RANGES_REPORTED", 2)
    world.begin(0, "5-5")
    world.events()
    world.commit(0, "ic/1;10-10,12-12,14-14")
    assert world.reported() == [(0, 0, 0, [[10, 10], [12, 12]], 3, 4)]
