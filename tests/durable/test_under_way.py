"""Requests without a response from brokers: a replaced broker is given up, a late one is not."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.durable.producer_requests import Append, Identify, RequestType
from kafka_share_proxy.durable.under_way import UnderWay, forget

PURPOSES: dict[RequestType, str] = {Append: "appends", Identify: "identifies"}


class Links:
    """Channels of which some are late."""

    def __init__(self, *late: tuple[int, str]) -> None:
        self.late = set(late)
        self.given_up: list[tuple[int, str]] = []

    def is_late(self, node_id: int, purpose: str) -> bool:
        return (node_id, purpose) in self.late

    def give_up(self, node_id: int, purpose: str, _reason: str) -> None:
        self.given_up.append((node_id, purpose))


def looked(under_way: UnderWay, links: Any, leaders: dict[int, int], coordinators: dict[int, int]) -> bool:
    return under_way.check(links, leaders, coordinators)


def test_leader_in_time_is_waited_for_though_another_one_leads() -> None:
    """Its response soon reports that, and the outcome of the append."""
    under_way, links = UnderWay(PURPOSES), Links()
    under_way.appends[1] = {7}
    assert not looked(under_way, links, {7: 2}, {})
    assert links.given_up == []


def test_late_leader_is_given_up_once_one_of_its_partitions_has_another() -> None:
    under_way, links = UnderWay(PURPOSES), Links((1, "appends"))
    under_way.appends[1] = {7, 8}
    assert looked(under_way, links, {7: 1, 8: 1}, {})
    assert looked(under_way, links, {7: 1}, {}), "8 has no leader at the moment"
    assert links.given_up == []
    assert looked(under_way, links, {7: 1, 8: 2}, {})
    assert links.given_up == [(1, "appends")]


def test_late_coordinator_is_looked_up_again_and_replaced_if_another_is_returned() -> None:
    under_way, links = UnderWay(PURPOSES), Links((1, "identifies"))
    under_way.identifies.update({7: 1, 8: 3})
    coordinators = {7: 1, 8: 3}
    assert looked(under_way, links, {}, coordinators)
    assert coordinators == {8: 3}, "only those that are not known are looked for"
    coordinators[7] = 2
    assert looked(under_way, links, {}, coordinators)
    assert (links.given_up, coordinators) == ([(1, "identifies")], {7: 2, 8: 3})
    under_way.stopped([7])
    assert not looked(under_way, links, {}, coordinators)


def test_newer_leader_is_not_forgotten() -> None:
    where = {7: 2, 8: 1}
    forget(where, 7, 1)
    forget(where, 8, 1)
    forget(where, 9, 1)
    assert where == {7: 2}
