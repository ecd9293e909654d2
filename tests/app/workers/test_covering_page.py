"""Page with which a supervisor lets a worker accept the clients of another one."""

import socket
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_share_proxy.app.workers.covering_page import CoveringPage
from kafka_share_proxy.feature.admin import AdminRequest


class Plane:
    """Keeps what is covered."""

    def __init__(self) -> None:
        self.covered: dict[int, list[Any]] = {}
        self.ports = self

    def cover(self, number: int, bind: Any) -> None:
        self.covered[number] = bind("127.0.0.1", 9092)

    def uncover(self, number: int) -> None:
        self.covered.pop(number, None)


def page(plane: Plane | None, refusal: str = "") -> CoveringPage:
    def listen(host: str, port: int, place: int) -> list[tuple[str, int, int]]:
        if refusal:
            raise OSError(refusal)
        return [(host, port, place)]

    supervisor: Any = SimpleNamespace(listen=listen, end=socket)
    untyped_plane: Any = plane
    return CoveringPage(supervisor, lambda: untyped_plane)


async def test_clients_of_a_place_are_accepted_from_begin_to_end() -> None:
    plane = Plane()
    covering = page(plane)
    assert await covering.response(AdminRequest(method="POST", parts=["3", "begin"])) == (HTTPStatus.OK, {})
    assert plane.covered == {3: [("127.0.0.1", 9092, 3)]}
    assert await covering.response(AdminRequest(method="POST", parts=["3", "end"])) == (HTTPStatus.OK, {})
    assert plane.covered == {}


async def test_a_refusal_of_the_supervisor_is_returned() -> None:
    covering = page(Plane(), "the supervisor has ended")
    status, body = await covering.response(AdminRequest(method="POST", parts=["3", "begin"])) or (None, None)
    assert (status, body) == (HTTPStatus.CONFLICT, {"reason": "the supervisor has ended"})


@pytest.mark.parametrize("parts", [["3"], ["x", "begin"], ["3", "pause"], []])
async def test_there_is_no_other_page(parts: list[str]) -> None:
    assert await page(Plane()).response(AdminRequest(method="POST", parts=parts)) is None


async def test_before_the_cluster_has_responded_nothing_is_covered() -> None:
    assert await page(None).response(AdminRequest(method="POST", parts=["3", "begin"])) is None


async def test_reading_covers_nothing() -> None:
    plane = Plane()
    assert await page(plane).response(AdminRequest(method="GET", parts=["3", "begin"])) is None
    assert plane.covered == {}
