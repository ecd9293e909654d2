"""Page with which a supervisor lets a worker remove one that has ended from the group of proxies."""

from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_share_proxy.app.workers.removing_page import RemovingPage
from kafka_share_proxy.feature.admin import AdminRequest


class Home:
    """State home of a worker whose group has the member a/5."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def member_ended(self, peer: str) -> bool:
        self.ended.append(peer)
        return peer == "a/5"


def page(home: Home | None) -> RemovingPage:
    seat: Any = SimpleNamespace(links="/run/ksp/links-0", paths={"a/5": "/run/ksp/links-5", "a/6": "/run/ksp/links-6"})
    untyped_home: Any = home
    return RemovingPage(seat, lambda: untyped_home)


async def test_a_worker_is_removed_by_its_name(home: Home) -> None:
    assert await page(home).response(AdminRequest(method="POST", parts=["5"])) == (HTTPStatus.OK, {})
    assert home.ended == ["a/5"]


async def test_a_worker_that_is_no_member_is_refused(home: Home) -> None:
    response = await page(home).response(AdminRequest(method="POST", parts=["6"]))
    assert response is not None
    assert response[0] == HTTPStatus.CONFLICT
    assert response[1] == {"reason": "worker 6 is not a member of the group of proxies"}


@pytest.mark.parametrize(("method", "parts"), [("GET", ["5"]), ("POST", ["x"]), ("POST", []), ("POST", ["5", "6"])])
async def test_there_is_no_other_page(home: Home, method: str, parts: list[str]) -> None:
    assert await page(home).response(AdminRequest(method=method, parts=parts)) is None
    assert home.ended == []


async def test_before_the_cluster_has_responded_nothing_is_removed() -> None:
    assert await page(None).response(AdminRequest(method="POST", parts=["5"])) is None


@pytest.fixture
def home() -> Home:
    return Home()
