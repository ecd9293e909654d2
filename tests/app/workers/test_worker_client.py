"""Requests of a supervisor to the admin listeners of its workers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import h11
import trio
import trio.testing
from kafka_share_proxy.app.observing import admin_listener
from kafka_share_proxy.app.observing.admin_listener import Response
from kafka_share_proxy.app.workers import worker_client
from kafka_share_proxy.loop.listeners import bind_local

LARGE = b"x" * 300_000


class Site:
    """Pages of a worker."""

    hosts = frozenset({"localhost"})
    confirmations = None

    async def response(self, request: h11.Request, peer: str) -> Response:
        assert peer == ""
        if request.target == b"/large":
            return Response(HTTPStatus.OK, LARGE, "text/plain")
        return admin_listener.refusal(HTTPStatus.NOT_FOUND, f"{request.method.decode()} {request.target.decode()}")


@asynccontextmanager
async def worker(folder: Path) -> AsyncIterator[str]:
    """An admin listener on a Unix socket."""
    path = str(folder / "admin")

    listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(bind_local(path)))]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(admin_listener.serve_admin, listeners, Site(), lambda *_, **__: None)
        yield path
        nursery.cancel_scope.cancel()


async def test_a_response_has_status_type_and_body(tmp_path: Path) -> None:
    async with worker(tmp_path) as path:
        assert await worker_client.request(path, "GET", "/large") == Response(HTTPStatus.OK, LARGE, "text/plain")
        refused = await worker_client.request(path, "POST", "/reload")
        assert refused is not None
        assert (refused.status, b"POST /reload" in refused.body) == (HTTPStatus.NOT_FOUND, True)


async def test_a_worker_that_has_ended_has_no_response(tmp_path: Path) -> None:
    assert await worker_client.request(str(tmp_path / "nobody"), "GET", "/livez") is None
    async with worker(tmp_path) as path:
        pass
    assert await worker_client.request(path, "GET", "/livez") is None


async def test_a_worker_that_does_not_respond_is_given_up(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    path = str(tmp_path / "silent")
    with bind_local(path):
        began = trio.current_time()
        assert await worker_client.request(path, "GET", "/livez") is None
        assert trio.current_time() - began >= admin_listener.REQUEST_TIMEOUT_S - 1
