"""Several features over one link: each has its own handlers, and keeps its own things at the edge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_share_proxy.fleet.carried import CarriedFeatures, CarriedRequests, EdgeOfLink, NothingKept
from kafka_share_proxy.fleet.group_owners import CommandResult
from kafka_share_proxy.forwarding.dispatch.routes import FramedHandler
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.wire.definitions import registry

from tests.support.ports import World


@dataclass
class Feature:
    """See CarriedRequests."""

    feature: str
    handlers: Mapping[int, FramedHandler]
    ended: list[int] = field(default_factory=list)
    changes: int = 0
    known: frozenset[str] = frozenset()

    def knows(self, group_id: str) -> bool:
        return group_id in self.known

    def edge(self) -> EdgeOfLink:
        return NothingKept()

    def link_ended(self, number: int) -> None:
        self.ended.append(number)

    def links_changed(self) -> None:
        self.changes += 1


async def _first(_: Call) -> bytes:
    return b"first"


async def _second(_: Call) -> bytes:
    return b"second"


def carried_features(*features: CarriedRequests) -> CarriedFeatures:
    carried = CarriedFeatures()
    for feature in features:
        carried.add(feature)
    return carried


def test_features_serve_the_same_api_independently() -> None:
    one: CarriedRequests = Feature("one", {42: _first})
    two: CarriedRequests = Feature("two", {42: _second, 8: _second})
    carried = carried_features(one, two)
    assert carried.handler("one", 42) is _first
    assert carried.handler("two", 42) is _second
    assert carried.handler("one", 8) is None
    assert carried.handler("three", 42) is None
    assert list(carried.edges()) == ["one", "two"]


def test_each_feature_reports_its_own_known_groups() -> None:
    carried = carried_features(Feature("one", {}, known=frozenset({"g"})), Feature("two", {}))
    assert [carried.knows(feature, "g") for feature in ("one", "two", "three")] == [True, False, False]
    assert not carried.knows("one", "h")


def test_all_features_are_notified_of_links() -> None:
    features = [Feature("one", {}), Feature("two", {})]
    carried = carried_features(*features)
    carried.link_ended(7)
    carried.links_changed()
    assert [(each.ended, each.changes) for each in features] == [([7], 1), ([7], 1)]


def test_without_held_groups_no_groups_are_reported_to_others() -> None:
    held = CarriedFeatures().held
    assert (set(held.groups), held.holdings()) == (set(), ((), ()))


def test_nothing_kept_leaves_requests_and_responses_as_they_are() -> None:
    edge: EdgeOfLink = NothingKept()
    message = registry.message("HeartbeatRequest")(group_id="g")
    call = Call(12, 4, 1, "client", message, World().connect())  # type: ignore[arg-type]
    request, not_before = edge.prepared(call)
    assert request is message
    assert not_before < 0
    assert edge.completed(call, bytearray(b"answer")) == b"answer"
    response = memoryview(b"of a broker")
    assert edge.to_owner(1, 0, b"", response) is response
    edge.forget([1])


def test_command_reaches_the_feature_it_names_only() -> None:
    one, two = Feature("one", {}), Feature("two", {})
    carried = CarriedFeatures()
    carried.add(one, command=lambda words: CommandResult(200, {"words": list(words)}))
    carried.add(two)
    assert carried.command("one", ["GET", "g"]) == (200, {"words": ["GET", "g"]})
    assert [carried.command(name, ["GET"]).status for name in ("two", "three")] == [404, 404]
