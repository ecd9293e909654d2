"""Individual commits on the status page."""

from __future__ import annotations

import pytest
from kafka_share_proxy.commits import status
from kafka_share_proxy.commits.lag import CommitLag
from kafka_share_proxy.feature.status import DETAIL_ROWS_MAX, ROWS_MAX, StatusSection
from kafka_share_proxy.wire.values import TopicPartition

from tests.support.commit_world import CommitWorld
from tests.support.status_sections import lines, part
from tests.support.steps import result_of


@pytest.fixture
def world() -> CommitWorld:
    created = CommitWorld()
    topic = created.world.cluster.create("t")
    created.world.cluster.produce(topic, 100)
    return created


def section(world: CommitWorld) -> StatusSection:
    lag = CommitLag(world.services)
    assert lag.refresh().done
    return result_of(status.section(world.services, lag))


def test_groups_are_shown_with_lag_and_their_oldest_holes(world: CommitWorld) -> None:
    world.begin(43, "45-47,50-50")
    shown = section(world)
    assert lines(shown.tables[0]) == [
        {"Group": "g", "Partition": "t-0", "Committed": 43, "Ranges": 2, "Open offsets": 4, "Lag": 53}
    ]
    assert lines(part(shown.details[0], "Oldest holes")) == [
        {"Partition": "t-0", "Hole": "43-44", "Offsets": 2},
        {"Partition": "t-0", "Hole": "48-49", "Offsets": 2},
    ]


def test_a_group_without_ranges_has_no_holes(world: CommitWorld) -> None:
    world.begin(43, "45-47")
    world.services.held.groups["g"].state_of(TopicPartition("t", 0)).learn_committed(60, -1)
    shown = section(world)
    assert lines(shown.tables[0])[0]["Ranges"] == 0
    assert shown.details == []


def test_long_lists_are_cut_and_counted(world: CommitWorld) -> None:
    group = world.services.held.group("h")
    for partition in range(ROWS_MAX + 3):
        done = [(20 + 10 * n, 25 + 10 * n) for n in range(10)]
        group.state_of(TopicPartition("t", partition)).learn_committed(10, -1, done)
    shown = section(world)
    assert (len(shown.tables[0].rows), shown.tables[0].left_out) == (ROWS_MAX, 3)
    holes = part(shown.details[0], "Oldest holes")
    assert (len(holes.rows), holes.left_out) == (
        DETAIL_ROWS_MAX,
        (ROWS_MAX + 3) * status.HOLES_MAX - DETAIL_ROWS_MAX,
    )


def test_the_reason_of_an_unknown_lag_is_shown(world: CommitWorld) -> None:
    world.begin(43, "45-47")
    world.world.own.refuses = "no route to host"
    shown = section(world)
    assert shown.notes == ["Lag is incomplete or old: no route to host"]
    assert lines(shown.tables[0])[0]["Lag"] is None
