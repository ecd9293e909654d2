"""The proxy's refusals are logged, because the member gets only a code."""

from __future__ import annotations

from typing import Any

from tests.support.commit_world import CommitWorld


def test_each_refused_partition_is_reported_with_its_reason() -> None:
    world = CommitWorld()
    notes: list[tuple[str, dict[str, Any]]] = []
    world.services.base.notes = lambda event, **context: notes.append((event, context))
    world.commit_many([("t", 0, 5, "ic/1;9-7"), ("t", 1, 5, "ic/1;7-9")])
    ((event, context),) = notes
    assert event == "commit-refused"
    assert (context["group"], context["topic"], context["partition"]) == ("g", "t", 0)
    assert "9-7" in context["reason"]
