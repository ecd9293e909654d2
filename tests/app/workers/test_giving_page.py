"""Page with which a supervisor lets a worker give connections to the one that has replaced another."""

from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_share_proxy.app.workers.giving_page import GivingPage
from kafka_share_proxy.feature.admin import AdminRequest


class Plane:
    """Plane whose connections are numbers. It gives all of them."""

    def __init__(self) -> None:
        self.workers = 0

    def give(self, workers: int, send: Any) -> int:
        self.workers = workers
        return sum(map(send, (1, 2)))


class Links:
    """Keeps what was given, by path."""

    def __init__(self) -> None:
        self.given: list[tuple[str, int]] = []

    def give(self, path: str, connection: int) -> bool:
        self.given.append((path, connection))
        return True


def page(plane: Plane | None, links: Links | None) -> GivingPage:
    seat: Any = SimpleNamespace(links="/run/ksp/links-0")
    given: tuple[Any, Any] = plane, SimpleNamespace(links=links)
    return GivingPage(seat, lambda: given[0], lambda: given[1])


async def test_connections_are_given_to_the_socket_of_the_worker() -> None:
    plane, links = Plane(), Links()
    request = AdminRequest(method="POST", parts=["5", "2"])
    assert await page(plane, links).response(request) == (HTTPStatus.OK, {"given": 2})
    assert (plane.workers, links.given) == (2, [("/run/ksp/links-5", 1), ("/run/ksp/links-5", 2)])


@pytest.mark.parametrize("parts", [["5"], ["x", "2"], ["5", "x"], ["5", "2", "3"], []])
async def test_there_is_no_other_page(parts: list[str]) -> None:
    assert await page(Plane(), Links()).response(AdminRequest(method="POST", parts=parts)) is None


async def test_without_links_and_before_the_cluster_has_responded_nothing_is_given() -> None:
    request = AdminRequest(method="POST", parts=["5", "2"])
    assert await page(Plane(), None).response(request) is None
    assert await page(None, Links()).response(request) is None


async def test_reading_gives_nothing() -> None:
    links = Links()
    assert await page(Plane(), links).response(AdminRequest(method="GET", parts=["5", "2"])) is None
    assert links.given == []
