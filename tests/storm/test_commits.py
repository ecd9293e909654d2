"""Weather for individual commits of one partition: long seeded stories, and what they find when something is wrong.

After each step: everything confirmed as stored is shown as done, also by an owner that reads the topic then; nothing is
shown as done that no member committed, or that was rewound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka_share_proxy.commits.model.partition_commits import PartitionCommits
from kafka_share_proxy.offsets.ranges import OffsetRanges

from tests.support import storm_commits

STEPS = 500


@pytest.mark.parametrize("seed", range(40))
def test_a_storm_breaks_nothing(seed: int) -> None:
    """`python -m tests.storm.run --commits` continues for the given time."""
    storm_commits.run(seed, STEPS)


def _all_storms() -> None:
    for seed in range(40):
        storm_commits.run(seed, STEPS)


def _forgets_what_failed(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _self, _change: None


def _does_not_notice_a_rewind(real: Callable[..., Any]) -> Callable[..., Any]:
    def learn_committed(self: PartitionCommits, offset: int, *rest: Any) -> Any:
        self.stored_committed, self.committed = -1, -1
        return real(self, offset, *rest)

    return learn_committed


def _shows_ranges_only(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, offset, done=(): (offset, self.ranges.union(OffsetRanges(done)))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("not_stored", _forgets_what_failed),
        ("learn_committed", _does_not_notice_a_rewind),
        ("shown", _shows_ranges_only),
    ],
)
def test_storms_find_what_is_wrong(name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forgotten failed append, an unnoticed rewind, ranges that do not move the committed offset."""
    monkeypatch.setattr(PartitionCommits, name, wrong(getattr(PartitionCommits, name)))
    with pytest.raises(AssertionError):
        _all_storms()
