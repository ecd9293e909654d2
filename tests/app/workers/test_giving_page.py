"""Page with which a supervisor lets a worker give connections to others."""

from collections.abc import Iterable
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_share_proxy.app.workers import giving_page
from kafka_share_proxy.app.workers.giving_page import GivingPage
from kafka_share_proxy.feature.admin import AdminRequest
from kafka_share_proxy.forwarding import fair_share
from kafka_share_proxy.forwarding.fair_share import FairShare, WorkerPlaces

NUMBER = 5
"""Number of the worker whose page this is."""


class Plane:
    """Plane that gives all that it should."""

    reactor = SimpleNamespace(now=lambda: 0.0)
    ports = SimpleNamespace(node_ids=(1, 2))

    def connections(self) -> list[Any]:
        return []

    def give(self, placements: Iterable[Any], send: Any) -> None:
        for place, connection in placements:
            send(place, connection)


class Links:
    """Keeps what was given, by path."""

    def __init__(self) -> None:
        self.transfers: list[tuple[str, int]] = []

    def give(self, path: str, connection: int) -> bool:
        self.transfers.append((path, connection))
        return True


def page(plane: Plane | None, links: Links | None) -> GivingPage:
    seat: Any = SimpleNamespace(links="/run/ksp/links-0", number=NUMBER)
    plane_and_links: tuple[Any, Any] = plane, SimpleNamespace(links=links)
    return GivingPage(seat, lambda: plane_and_links[0], lambda: plane_and_links[1])


def post(*parts: str) -> AdminRequest:
    return AdminRequest(method="POST", parts=parts)


@pytest.fixture
def choices(monkeypatch: pytest.MonkeyPatch) -> list[WorkerPlaces]:
    """Places with which connections were chosen: number 10 for place 0, and 20 for a new place."""
    chosen_places: list[WorkerPlaces] = []

    def misplaced(_self: FairShare, _connections: Any, places: WorkerPlaces, _now: float) -> list[Any]:
        chosen_places.append(places)
        return [(0, 10)]

    monkeypatch.setattr(FairShare, "misplaced", misplaced)
    monkeypatch.setattr(fair_share, "share_of", lambda new, _connections, _places: [(new, 20)])
    return chosen_places


async def test_connections_that_others_should_serve_are_given_to_their_sockets(choices: list[WorkerPlaces]) -> None:
    links = Links()
    assert await page(Plane(), links).response(post("4,5,9")) == (HTTPStatus.OK, {"given": 1})
    assert links.transfers == [("/run/ksp/links-4", 10)]
    assert choices == [WorkerPlaces(1, 3, (1, 2))]


async def test_a_worker_that_has_replaced_another_gets_its_share_too(choices: list[WorkerPlaces]) -> None:
    links = Links()
    assert await page(Plane(), links).response(post("4,5,9", "2")) == (HTTPStatus.OK, {"given": 2})
    assert links.transfers == [("/run/ksp/links-4", 10), ("/run/ksp/links-9", 20)]
    assert choices


def test_the_supervisor_names_all_workers_by_place() -> None:
    assert giving_page.target([4, 5, 9]) == "/gives/4,5,9"
    assert giving_page.target([4, 5, 9], 0) == "/gives/4,5,9/0"


@pytest.mark.parametrize("parts", [["4"], ["x,5"], ["5,"], ["5", "x"], ["5", "1"], ["5", "0", "3"], [""], []])
async def test_there_is_no_other_page(parts: list[str]) -> None:
    assert await page(Plane(), Links()).response(post(*parts)) is None


async def test_without_links_and_before_the_cluster_has_responded_nothing_is_given() -> None:
    assert await page(Plane(), None).response(post("5,2")) is None
    assert await page(None, Links()).response(post("5,2")) is None


async def test_reading_gives_nothing(choices: list[WorkerPlaces]) -> None:
    links = Links()
    assert await page(Plane(), links).response(AdminRequest(method="GET", parts=["5,2"])) is None
    assert (links.transfers, choices) == ([], [])
