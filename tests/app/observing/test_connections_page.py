"""The page /connections: what it serves, and when. What is in it is in tests/forwarding/test_connection_list."""

from __future__ import annotations

from http import HTTPStatus

from kafka_share_proxy.app.observing.connections_page import ConnectionsPage
from kafka_share_proxy.feature.admin import AdminRequest

from tests.forwarding.plane_world import world


async def test_connections_are_listed_once_there_is_a_data_plane() -> None:
    with world() as w:
        client = w.client()
        page = ConnectionsPage(lambda: w.plane)
        status, body = await page.response(AdminRequest(method="GET")) or (0, {})
        assert (status, len(body["connections"])) == (HTTPStatus.OK, 1)
        status, body = await page.response(AdminRequest(method="GET", parts=["10.0.0.1"])) or (0, {})
        assert (status, body["connections"]) == (HTTPStatus.OK, [])
        assert await page.response(AdminRequest(method="GET", parts=["a", "b"])) is None
        client.close()
    refused = await ConnectionsPage(lambda: None).response(AdminRequest(method="GET"))
    assert refused is not None
    assert refused[0] is HTTPStatus.SERVICE_UNAVAILABLE


async def test_the_page_is_read_only() -> None:
    refused = await ConnectionsPage(lambda: None).response(AdminRequest(method="POST"))
    assert refused is not None
    assert refused[0] is HTTPStatus.METHOD_NOT_ALLOWED
