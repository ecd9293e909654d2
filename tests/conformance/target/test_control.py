"""Control over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from kafka_share_proxy.conformance.target.control import ControlRequest, open_control, respond, serve_control
from kafka_share_proxy.conformance.target.server import TargetServer

from tests.support.target_client import METADATA, connected, served


async def request(server: TargetServer, method: str, target: str, body: str = "", page: bool = False) -> Any:
    reply = await respond(server, ControlRequest(method, target, body.encode(), page))
    is_json = reply.content_type.startswith("application/json")
    return int(reply.status), json.loads(reply.body) if is_json else reply.body.decode()


async def test_values_are_in_the_query_or_the_body() -> None:
    async with served() as server:
        await request(server, "POST", "/clock/stop")
        status, reply = await request(server, "POST", "/clock/advance?ms=30000")
        assert (status, reply["done"]) == (200, "clock/advance")
        assert reply["now_s"] >= 30
        assert (await request(server, "POST", "/topics", '{"name": "t"}'))[0] == 200
        assert (await request(server, "GET", "/state"))[1]["topics"][0]["name"] == "t"


async def test_faults_are_listed_with_their_counters() -> None:
    async with served() as server:
        body = '{"api": "Metadata", "throttle_ms": 100, "count": null}'
        assert (await request(server, "POST", "/faults", body))[1]["number"] == 1
        client = await connected(server)
        assert (await client.call(METADATA)).throttle_time_ms == 100
        (fault,) = (await request(server, "GET", "/faults"))[1]["faults"]
        assert fault == {
            "number": 1, "selected": 1, "applied": 1, "api": "Metadata", "throttle_ms": 100, "count": None
        }  # fmt: skip
        assert (await request(server, "DELETE", "/faults/1"))[0] == 200
        assert (await request(server, "DELETE", "/faults"))[0] == 200
        assert (await request(server, "GET", "/faults"))[1] == {"faults": []}


async def test_the_report_has_the_findings() -> None:
    async with served() as server:
        client = await connected(server)
        await client.call(METADATA)
        (finding,) = (await request(server, "GET", "/report"))[1]["findings"]
        assert (finding["rule"], finding["client_id"]) == ("api-versions-missing", "test")
        assert (
            '<testcase classname="judge" name="api-versions-missing">'
            in ((await request(server, "GET", "/report.junit"))[1])
        )
        assert "clock/advance" in (await request(server, "GET", "/actions"))[1]["actions"]


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "text"),
    [
        ("POST", "/clock/advance", "{", 400, "the body is no JSON"),
        ("POST", "/clock/advance", "[1]", 400, "the body must be a JSON object"),
        ("POST", "/clock/advance", "", 400, "ms: is missing"),
        ("POST", "/no/such", "", 404, "there is no action"),
        ("POST", "/nodes/9/down", "", 400, "there is no node 9"),
        ("DELETE", "/faults/9", "", 404, "there is no 9"),
        ("GET", "/no", "", 404, "pages are /state"),
        ("PUT", "/topics", "", 405, "use GET, POST"),
    ],
)
async def test_a_mistake_is_named(method: str, target: str, body: str, status: int, text: str) -> None:
    async with served() as server:
        received, reply = await request(server, method, target, body)
        assert received == status
        assert text in reply["error"][0]


async def test_a_web_page_controls_nothing() -> None:
    async with served() as server:
        assert (await request(server, "POST", "/clock/stop", page=True))[0] == 403
        assert server.clock.runs


async def exchange(port: int, data: bytes) -> bytes:
    """Send bytes, and return all that is received."""
    received = b""
    with trio.fail_after(20):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            await stream.send_all(data)
            async for part in stream:
                received += part
    return received


async def test_requests_are_received_over_http() -> None:
    async with served() as server, trio.open_nursery() as nursery:
        listeners = await open_control("127.0.0.1", 0)
        nursery.start_soon(serve_control, listeners, server)
        port = listeners[0].socket.getsockname()[1]
        head = b"POST /topics HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\nOrigin: http://evil\r\n\r\n"
        assert b"403 Forbidden" in await exchange(port, head + b'{"name": "t"}\n')
        head = b"POST /topics HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\nExpect: 100-continue\r\n\r\n"
        assert b"200 OK" in await exchange(port, head + b'{"name": "t"}\n')
        assert b'"name": "t"' in await exchange(port, b"GET /state HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"400" in await exchange(port, b"nonsense\r\n\r\n")
        large = b"POST /topics HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n" + b" " * 2_000_000
        assert b"413" in (await exchange(port, large))[:20]
        nursery.cancel_scope.cancel()
