"""Requests of a supervisor to the admin listeners of its workers, over Unix sockets (h11)."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING

import h11
import trio

from kafka_share_proxy.app.observing.admin_listener import JSON, REQUEST_TIMEOUT_S, Response

if TYPE_CHECKING:
    from kafka_share_proxy.app.workers.worker_process import WorkerProcess

READ_BYTES = 64 << 10
RESPONSE_BYTES_MAX = 64 << 20
"""Maximum bytes of a response."""


async def request(path: str, method: str, target: str) -> Response | None:
    """Return the response of the worker that listens at `path`. None if it has ended or takes too long."""
    with trio.move_on_after(REQUEST_TIMEOUT_S):
        try:
            stream = await trio.open_unix_socket(path)
            async with stream:
                return await _exchange(stream, method, target)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, h11.ProtocolError):
            return None
    return None


async def request_all(running: Mapping[int, WorkerProcess], method: str, target: str) -> dict[int, Response]:
    """Return the responses of all workers that respond, by number."""
    responses: dict[int, Response] = {}

    async def one(worker: WorkerProcess) -> None:
        response = await request(worker.admin, method, target)
        if response is not None:
            responses[worker.number] = response

    async with trio.open_nursery() as nursery:
        for worker in running.values():
            nursery.start_soon(one, worker)
    return dict(sorted(responses.items()))


async def _exchange(stream: trio.abc.Stream, method: str, target: str) -> Response | None:
    http = h11.Connection(h11.CLIENT)
    start = h11.Request(method=method, target=target, headers=[("Host", "localhost"), ("Connection", "close")])
    await stream.send_all((http.send(start) or b"") + (http.send(h11.EndOfMessage()) or b""))
    head: h11.Response | None = None
    body = bytearray()
    while len(body) <= RESPONSE_BYTES_MAX:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(bytes(await stream.receive_some(READ_BYTES)))
        elif isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        else:
            break
    return None if head is None else Response(HTTPStatus(head.status_code), bytes(body), _content_type(head))


def _content_type(head: h11.Response) -> str:
    return next((value.decode("ascii") for name, value in head.headers if name == b"content-type"), JSON)
