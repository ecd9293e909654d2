"""Pages of the features on the admin listener, and clients that may change something."""

from __future__ import annotations

import json
from functools import partial
from http import HTTPStatus
from typing import Any

import pytest
from kafka_share_proxy.app.observing import admin_pages
from kafka_share_proxy.app.observing.admin_pages import AdminPages, Changes
from kafka_share_proxy.feature.admin import AdminRequest, Page
from kafka_share_proxy.feature.feature import Feature, Probe
from kafka_share_proxy.sharegroups import admin_pages as group_pages

from tests.app.observing.test_admin_listener import get, running, send_request
from tests.support.ports import World, acquired

HERE = "127.0.0.1"
RELEASE = "/groups/a%2Fg/members/m%201/release"


async def echo(request: AdminRequest) -> Page | None:
    """Return the request as a page; there is no page `absent`."""
    if "absent" in request.parts:
        return None
    return HTTPStatus.OK, {"method": request.method, "parts": request.parts, "forbidden": request.forbidden}


def pages(changes: Changes = "local", page: Any = echo) -> AdminPages:
    built = (Feature(probe=Probe(path="bare")), Feature(probe=Probe(path="notes"), pages={"notes": page}))
    return AdminPages(("notes",), changes, lambda: built)


async def test_page_of_a_feature_gets_the_decoded_rest_of_the_path() -> None:
    response = await pages().response("GET", "/notes/a%2Fb/c", peer=HERE, from_page=False)
    assert response == (HTTPStatus.OK, {"method": "GET", "parts": ["a/b", "c"], "forbidden": ""})


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/livez"), ("GET", "/notes/absent"), ("DELETE", "/notes"), ("GET", "*"), ("GET", "/")]
)
async def test_other_paths_are_left_to_the_listener(method: str, path: str) -> None:
    assert await pages().response(method, path, peer=HERE, from_page=False) is None


async def test_pages_are_unavailable_until_the_cluster_has_responded() -> None:
    early = AdminPages(("notes",), "local", lambda: None)
    response = await early.response("GET", "/notes", peer=HERE, from_page=False)
    assert response is not None
    assert response[0] == HTTPStatus.SERVICE_UNAVAILABLE
    assert await early.response("GET", "/livez", peer=HERE, from_page=False) is None


@pytest.mark.parametrize(
    ("changes", "peer", "from_page", "may_change"),
    [
        ("local", "127.0.0.1", False, True),
        ("local", "::1", False, True),
        ("local", "::ffff:127.0.0.1", False, True),
        ("local", "10.0.0.7", False, False),
        ("local", "", False, False),
        ("local", "127.0.0.1", True, False),
        ("any", "10.0.0.7", False, True),
        ("any", "10.0.0.7", True, False),
        ("never", "127.0.0.1", False, False),
    ],
)
async def test_web_pages_never_change_anything_and_by_default_no_other_machine(
    changes: Changes, peer: str, from_page: bool, may_change: bool
) -> None:
    response = await pages(changes).response("POST", "/notes", peer=peer, from_page=from_page)
    assert response is not None
    assert (response[1]["forbidden"] == "") is may_change


async def test_pages_are_served_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """Request over a socket, response as JSON; the peer is this machine."""
    world = World()
    world.configure("a/g", share_auto_offset_reset="earliest")
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = world.member(group_id="a/g", member_id="m 1")
    member.heartbeat(0, ["t"])
    assert acquired(member.fetch(topic)) == [(0, 9, 1)]
    built = (Feature(probe=Probe(path="x"), pages={"groups": partial(group_pages.response, world.services)}),)
    async with running(pages=AdminPages(("groups",), "local", lambda: built)) as (dial, _):
        status, _, body = await send_request(dial, get("/groups/a%2Fg?x=1"))
        assert (status, json.loads(body)["group"]) == (200, "a/g")
        assert (await send_request(dial, get("/groups/a%2Fg", "HEAD")))[2] == b""
        page = get(RELEASE, "POST").replace(b"Host: localhost\r\n", b"Host: localhost\r\nOrigin: http://evil\r\n")
        assert (await send_request(dial, page))[0] == 403
        status, _, body = await send_request(dial, get(RELEASE, "POST"))
        assert (status, json.loads(body)["released_records"]) == (200, 10)
        monkeypatch.setattr(admin_pages, "_is_loopback", lambda peer: False)
        assert (await send_request(dial, get(RELEASE, "POST")))[0] == 403
        status, _, body = await send_request(dial, get("/absent"))
        expected = "there are /livez, /readyz, /readyz/views, /metrics and /groups"
        assert (status, json.loads(body)["reason"]) == (404, expected)
