"""The admin listener: probes and metrics, and peers that do not behave."""

import ipaddress
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus

import pytest
import trio
import trio.testing
from kafka_share_proxy.app.observing import admin_listener
from kafka_share_proxy.app.observing.admin_pages import AdminPages
from kafka_share_proxy.app.observing.confirmations import Confirmations
from kafka_share_proxy.feature.admin import AdminRequest, Page
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.proxy_headers import Network

from tests.support.awaited import is_awaited
from tests.support.proxy_headers import LOCAL, header, of_client


class Received:
    """Notes, kept."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, event: str, /, **context: object) -> None:
        self.events.append(event)

    async def first(self) -> str:
        """The first event, as soon as there is one."""
        with trio.fail_after(5):
            while not self.events:
                await trio.lowlevel.checkpoint()
        return self.events[0]


@asynccontextmanager
async def running(
    ready: bool = True,
    metrics: Callable[[], Iterable[bytes]] = lambda: [b"ksp_up 1\n"],
    pages: AdminPages | None = None,
    hosts: frozenset[str] = frozenset({"localhost"}),
    lookups: Sequence[Callable[[], Promise[None]]] = (),
    status: Callable[[bool], Iterable[bytes]] | None = None,
    confirmations: Confirmations | None = None,
    balancers: Sequence[Network] = (),
) -> AsyncIterator[tuple[Callable[[], trio.abc.Stream], Received]]:
    """An admin listener on a free port."""
    probes = admin_listener.Probes(
        alive=lambda: {"version": "1"},
        ready={path: lambda: (ready, {"ready": ready, "reasons": []}) for path in (b"/readyz", b"/readyz/views")},
        metrics=metrics,
        lookups=lookups,
        status=status,
        confirmations=confirmations,
        pages=pages or AdminPages(),
        hosts=hosts,
    )
    received = Received()
    listeners = [trio.SocketListener(await _bound())]
    port = listeners[0].socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(admin_listener.serve_admin, listeners, probes, received, balancers)
        yield partial(trio.open_tcp_stream, "127.0.0.1", port), received
        nursery.cancel_scope.cancel()


async def test_the_library_for_figures_is_loaded_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a tenth of a second, in which clients want to be served."""
    loaded: list[tuple[str, int]] = []
    monkeypatch.delitem(sys.modules, admin_listener.METRICS_LIBRARY, raising=False)
    monkeypatch.setattr(
        admin_listener.importlib, "import_module", lambda name: loaded.append((name, threading.get_ident()))
    )
    async with running() as (connect, _), await connect() as stream:
        await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"ksp_up 1" in b"".join([chunk async for chunk in stream])
    ((name, thread),) = loaded
    assert name == "prometheus_client"
    assert thread != threading.get_ident()


async def _bound() -> trio.socket.SocketType:
    socket = trio.socket.socket()
    await socket.bind(("127.0.0.1", 0))
    socket.listen()
    return socket


async def send_request(dial: Callable[[], trio.abc.Stream], request: bytes) -> tuple[int, dict[str, str], bytes]:
    """One request on one connection, read to its end."""
    received = b""
    async with await dial() as stream:
        with trio.fail_after(5):
            await stream.send_all(request)
            async for chunk in stream:
                received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


async def test_livez_and_readyz_return_json() -> None:
    """Alive and ready are 200 with a body that says more."""
    async with running() as (dial, _):
        assert await send_request(dial, get("/livez")) == (200, _headers(21), b'{\n  "version": "1"\n}\n')
        status, _, body = await send_request(dial, get("/readyz?verbose=1"))
        assert (status, json.loads(body)) == (200, {"ready": True, "reasons": []})


def _headers(length: int) -> dict[str, str]:
    return {
        "content-type": "application/json; charset=utf-8",
        "content-length": str(length),
        "connection": "close",
        "cache-control": "no-store",
    }


async def test_not_ready_is_503() -> None:
    """The body names the part that is not ready, in addition to the status."""
    async with running(ready=False) as (dial, _):
        status, _, body = await send_request(dial, get("/readyz"))
        assert (status, json.loads(body)["ready"]) == (503, False)


async def test_metrics_are_text_of_any_size() -> None:
    """More than a socket buffer arrives whole."""
    page = b"ksp_x 1\n" * 400_000
    async with running(metrics=lambda: [page[:100], b"", page[100:]]) as (dial, _):
        status, headers, body = await send_request(dial, get("/metrics"))
        assert (status, body) == (200, page)
        assert headers["content-type"].startswith("text/plain")


async def test_head_has_no_body() -> None:
    """Probes that use HEAD get the same status and length."""
    async with running() as (dial, _):
        status, headers, body = await send_request(dial, get("/livez", "HEAD"))
        assert (status, headers["content-length"], body) == (200, "21", b"")


@pytest.mark.parametrize(("path", "method", "expected"), [("/", "GET", 404), ("/livez", "POST", 405)])
async def test_an_unserved_path_is_reported(path: str, method: str, expected: int) -> None:
    """Other paths and methods have their own status."""
    async with running() as (dial, _):
        assert (await send_request(dial, get(path, method)))[0] == expected


async def test_a_request_without_end_is_refused() -> None:
    """Headers above the limit get status 431 and are never kept."""
    async with running() as (dial, received):
        request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * (
            admin_listener.REQUEST_BYTES_MAX + admin_listener.READ_BYTES
        )
        assert (await send_request(dial, request))[0] == 431
        assert await received.first() == "admin-bad-request"


async def test_bytes_that_are_no_http_are_refused() -> None:
    """A Kafka client on the wrong port gets an error, and the next request is served."""
    async with running() as (dial, received):
        assert (await send_request(dial, b"\x00\x00\x00\x10 no http \r\n\r\n"))[0] == 400
        assert await received.first() == "admin-bad-request"
        assert (await send_request(dial, get("/livez")))[0] == 200


async def test_a_peer_that_leaves_or_stays_silent_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a request, then nothing: the connection ends by its time limit, others are served meanwhile."""
    monkeypatch.setattr(admin_listener, "REQUEST_TIMEOUT_S", 0.05)
    async with running() as (dial, _):
        async with await dial() as left:
            await left.send_all(b"GET /li")
        async with await dial() as silent:
            with trio.fail_after(5):
                assert await silent.receive_some(1) == b""
        assert (await send_request(dial, get("/livez")))[0] == 200


async def test_connections_above_the_limit_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit holds, and a place is free again when a connection ended."""
    monkeypatch.setattr(admin_listener, "CONNECTIONS_MAX", 1)
    async with running() as (dial, _):
        async with await dial() as first:
            await trio.testing.wait_all_tasks_blocked()
            await first.send_all(b"GET")
            async with await dial() as second:
                with trio.fail_after(5):
                    assert await second.receive_some(1) == b""
        with trio.fail_after(5):
            status = 0
            while status != 200:
                try:
                    status = (await send_request(dial, get("/livez")))[0]
                except (IndexError, trio.BrokenResourceError):
                    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9", 200), ("127.0.0.1", 200), ("10.1.2.3:19090", 200), ("[::1]:9", 200), ("Proxy.Example.:9", 200),
        ("evil.example", 421), ("evil.example:9", 421), ("127.0.0.1.evil.example", 421), ("", 421),
    ],
)  # fmt: skip
async def test_a_name_that_is_not_ours_is_refused(host: str, status: int) -> None:
    """A web page whose name is made to resolve to this machine (DNS rebinding) reads nothing."""
    async with running(hosts=admin_listener.own_names("proxy.example")) as (dial, _):
        for path in ("/readyz", "/metrics", "/livez"):
            request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
            assert (await send_request(dial, request))[0] == status
        assert (await send_request(dial, b"GET /livez HTTP/1.0\r\n\r\n"))[0] == 200


GET_METRICS = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def test_a_scrape_waits_for_look_ups_at_brokers() -> None:
    looked_up: Promise[None] = Promise()
    lookups: list[int] = []

    def begin() -> Promise[None]:
        lookups.append(1)
        trio.lowlevel.current_trio_token().run_sync_soon(looked_up.set, None)
        return looked_up

    async with running(metrics=lambda: [b"ksp_done %d\n" % looked_up.done], lookups=[begin]) as (dial, _):
        assert not lookups
        assert (await send_request(dial, GET_METRICS))[2] == b"ksp_done 1\n"
        assert lookups == [1]


async def test_a_look_up_that_does_not_end_holds_up_a_scrape_only_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_listener, "LOOKUP_WAIT_S", 0.01)
    never: Promise[None] = Promise()
    async with running(lookups=[lambda: never]) as (dial, _):
        assert (await send_request(dial, GET_METRICS))[2] == b"ksp_up 1\n"
    assert not is_awaited(never)


@pytest.mark.parametrize(
    ("before", "forbidden"),
    [
        (of_client("192.0.2.7"), "only this machine may change something: admin_changes is local"),
        (of_client("127.0.0.9"), ""),
        (header(LOCAL, 0, b""), ""),
    ],
)
async def test_through_a_load_balancer_rights_are_those_of_its_client(before: bytes, forbidden: str) -> None:
    """A load balancer on this machine would otherwise be local for all of its clients."""
    refusals: list[str] = []

    async def page(request: AdminRequest) -> Page:
        refusals.append(request.forbidden)
        return HTTPStatus.OK, {}

    pages = AdminPages(own={"reload": page})
    async with running(pages=pages, balancers=[ipaddress.ip_network("127.0.0.0/8")]) as (dial, _):
        assert (await send_request(dial, before + get("/reload", "POST")))[0] == 200
    assert refusals == [forbidden]


async def test_a_load_balancer_without_a_header_is_refused() -> None:
    async with running(balancers=[ipaddress.ip_network("127.0.0.1")]) as (dial, received), await dial() as stream:
        await stream.send_all(get("/livez"))
        assert await received.first() == "proxy-header-refused"
    async with running(balancers=[ipaddress.ip_network("192.0.2.0/24")]) as (dial, _):
        assert (await send_request(dial, get("/livez")))[0] == 200, "it is none"
