"""HTTP control of a cluster (HTTP/1.1 with h11): one request for each connection, JSON both ways.

GET /state, /faults, /report, /report.junit and /actions; POST for every action, with values in the query or as JSON.
Requests of web pages, recognised by their Origin header, may change nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
import trio

from kafka_share_proxy.conformance.judge import reports
from kafka_share_proxy.conformance.target import cluster_report
from kafka_share_proxy.conformance.target.server import TargetServer

BODY_BYTES_MAX = 1 << 20
HEAD_BYTES_MAX = 16 << 10
REQUEST_TIMEOUT_S = 10.0
"""Seconds from the connection to the last byte of the response."""
READ_BYTES = 4096
LINGER_BYTES, LINGER_READS_MAX = 64 << 10, 1_000
"""Bytes of one read after the response, and maximum number of such reads."""
JSON, XML = "application/json; charset=utf-8", "application/xml; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Reply:
    """Response of the control."""

    status: HTTPStatus
    body: bytes
    content_type: str = JSON


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """Request to the control."""

    method: str
    target: str
    body: bytes = b""
    from_page: bool = False


async def open_control(host: str, port: int) -> list[trio.SocketListener]:
    """Bind the listener. Raises OSError if the address is in use or not of this machine."""
    return await trio.open_tcp_listeners(port, host=host)


async def serve_control(listeners: list[trio.SocketListener], server: TargetServer) -> None:
    """Serve requests until cancelled."""
    await trio.serve_listeners(partial(_serve_one, server=server), listeners)


async def _serve_one(stream: trio.SocketStream, *, server: TargetServer) -> None:
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
    try:
        with trio.move_on_after(REQUEST_TIMEOUT_S):
            try:
                request = await _received(stream, http)
                reply = None if request is None else await respond(server, request)
            except h11.RemoteProtocolError as error:
                reply = _mistake(HTTPStatus(error.error_status_hint), str(error))
            if reply is not None:
                await stream.send_all(_bytes(http, reply))
                await _linger(stream)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # the client closed the connection
    finally:
        await trio.aclose_forcefully(stream)


async def _linger(stream: trio.SocketStream) -> None:
    """Read the rest of the request: closing with unread bytes would reset the connection, and lose the response."""
    await stream.send_eof()
    for _ in range(LINGER_READS_MAX):
        if not await stream.receive_some(LINGER_BYTES):
            return


async def _received(stream: trio.SocketStream, http: h11.Connection) -> ControlRequest | None:
    """Read one request. Return None if the client closed the connection. Raises h11.RemoteProtocolError."""
    head: h11.Request | None = None
    body = b""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            if http.they_are_waiting_for_100_continue:
                go_ahead = h11.InformationalResponse(status_code=100, headers=[])
                await stream.send_all(http.send(go_ahead) or b"")
            http.receive_data(bytes(await stream.receive_some(READ_BYTES)))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
            if len(body) > BODY_BYTES_MAX:
                raise h11.RemoteProtocolError("the body has more than 1 MiB", error_status_hint=413)
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            from_page = any(name == b"origin" for name, _ in head.headers)
            return ControlRequest(head.method.decode(), head.target.decode("ascii", "replace"), body, from_page)
        else:
            return None


async def respond(server: TargetServer, request: ControlRequest) -> Reply:
    """Serve one request."""
    parts = urlsplit(request.target)
    path = unquote(parts.path).strip("/")
    if request.method == "GET":
        return _page(server, path)
    if request.method not in ("POST", "DELETE"):
        return _mistake(HTTPStatus.METHOD_NOT_ALLOWED, "use GET, POST, or DELETE for faults and topics")
    if request.from_page:
        return _mistake(HTTPStatus.FORBIDDEN, "a web page may not control the cluster")
    if request.method == "DELETE":
        path = "faults/clear" if path == "faults" else f"{path}/delete"
    try:
        values = _values(request.body, parts.query)
    except ValueError as error:
        return _mistake(HTTPStatus.BAD_REQUEST, str(error))
    return await _act(server, path, values)


async def _act(server: TargetServer, path: str, values: dict[str, Any]) -> Reply:
    from kafka_share_proxy.conformance.target.actions import Action, ActionError  # pydantic is slow to import

    try:
        details = await Action(path, values).apply(server)
    except ActionError as error:
        return _mistake(HTTPStatus.NOT_FOUND if error.unknown else HTTPStatus.BAD_REQUEST, str(error))
    return _json({"done": path, "now_s": server.clock.now(), **details})


def _page(server: TargetServer, path: str) -> Reply:
    if path == "state":
        return _json(cluster_report.state(server))
    if path == "faults":
        return _json({"faults": [cluster_report.fault(placed) for placed in server.faults]})
    if path == "report":
        return _json(reports.as_json(server.findings()))
    if path == "report.junit":
        text = reports.as_junit(server.findings(), server.judge.rules)
        return Reply(HTTPStatus.OK, text.encode(), XML)
    if path == "actions":
        from kafka_share_proxy.conformance.target.actions import ACTIONS

        return _json({"actions": {name: model.model_json_schema() for name, (model, _) in ACTIONS.items()}})
    return _mistake(HTTPStatus.NOT_FOUND, "pages are /state, /faults, /report, /report.junit and /actions")


def _values(body: bytes, query: str) -> dict[str, Any]:
    """Return the values of body and query. Raises ValueError if the body is no JSON object."""
    values: dict[str, Any] = {}
    if body.strip():
        try:
            values = json.loads(body)
        except ValueError as error:
            raise ValueError(f"the body is no JSON: {error}") from None
        if not isinstance(values, dict):
            raise ValueError("the body must be a JSON object")
    return {**values, **dict(parse_qsl(query))}


def _json(values: dict[str, Any]) -> Reply:
    return Reply(HTTPStatus.OK, json.dumps(values, indent=2).encode() + b"\n")


def _mistake(status: HTTPStatus, text: str) -> Reply:
    return Reply(status, json.dumps({"error": text.split("\n")}, indent=2).encode() + b"\n")


def _bytes(http: h11.Connection, reply: Reply) -> bytes:
    headers = [
        ("Content-Type", reply.content_type),
        ("Content-Length", str(len(reply.body))),
        ("Connection", "close"),
    ]
    start = h11.Response(status_code=reply.status, headers=headers, reason=reply.status.phrase.encode())
    return b"".join(http.send(event) or b"" for event in (start, h11.Data(data=reply.body), h11.EndOfMessage()))
