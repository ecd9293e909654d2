"""The page /trace: begin, read from a position, end, and what is refused."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from kafka_share_proxy.app.observing.trace_page import TracePage, lines_of
from kafka_share_proxy.app.settings.config import TraceSettings
from kafka_share_proxy.feature.admin import AdminRequest

from tests.forwarding.client_trace.test_client_trace import ADDRESS, connected, exchanged
from tests.forwarding.plane_world import World, world


def page_of(w: World, **settings: Any) -> TracePage:
    return TracePage(lambda: w.plane, lambda: TraceSettings(**settings), 3)


async def get(page: TracePage, *parts: str) -> Any:
    response = await page.response(AdminRequest(method="GET", parts=parts))
    return response and response[1]


async def post(page: TracePage, *parts: str, forbidden: str = "") -> tuple[int, Any]:
    response = await page.response(AdminRequest(method="POST", parts=parts, forbidden=forbidden))
    return response or (0, None)


async def test_lines_are_read_from_a_position_on() -> None:
    with world() as w:
        page = page_of(w)
        client, broker = connected(w)
        assert (await get(page))["client"] == ""
        status, body = await post(page, "begin", ADDRESS, "5")
        assert (status, body["on"], body["position"]) == (HTTPStatus.OK, True, "3:0")
        exchanged(client, broker, 1)
        first = await get(page, "after", "0:17,3:0")
        assert ([json.loads(line)["correlation_id"] for line in first["lines"]], first["position"]) == ([1, 1], "3:2")
        exchanged(client, broker, 2)
        assert len((await get(page, "after", first["position"]))["lines"]) == 2
        assert len((await get(page))["lines"]) == 4
        status, body = await post(page, "end")
        assert (status, body["on"], body["ended"]) == (HTTPStatus.OK, False, "it was ended by the admin listener")


async def test_a_trace_has_the_time_of_the_settings_unless_one_is_named() -> None:
    with world() as w:
        page = page_of(w, seconds=7, seconds_max=9)
        assert 6 < (await post(page, "begin", "app"))[1]["seconds_left"] <= 7
        assert 8 < (await post(page, "begin", "app", "9"))[1]["seconds_left"] <= 9
        for seconds in ("10", "0", "-1", "nan", "inf", "long"):
            assert (await post(page, "begin", "app", seconds))[0] == HTTPStatus.UNPROCESSABLE_ENTITY


async def test_client_without_the_right_to_change_something_cannot_begin_a_trace() -> None:
    with world() as w:
        status, body = await post(page_of(w), "begin", "app", forbidden="not from here")
        assert (status, body["reason"]) == (HTTPStatus.FORBIDDEN, "not from here")
        assert w.plane.client_trace.is_on is False


async def test_there_is_no_trace_before_the_cluster_has_responded() -> None:
    page = TracePage(lambda: None, TraceSettings, 0)
    assert (await post(page, "begin", "app"))[0] == HTTPStatus.SERVICE_UNAVAILABLE


async def test_other_paths_are_no_pages() -> None:
    with world() as w:
        page = page_of(w)
        for parts in (("after",), ("begin", "app")):
            assert await get(page, *parts) is None
        for parts in (("begin",), ("begin", ""), ("begin", "a", "1", "x"), ()):
            assert (await post(page, *parts))[0] == 0


def test_a_position_names_the_lines_of_each_worker() -> None:
    assert [lines_of("0:5,12:7", worker) for worker in (0, 12, 1, 2)] == [5, 7, 0, 0]
    assert lines_of("0:x", 0) == lines_of("", 0) == 0
