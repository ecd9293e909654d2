"""Page /trace of a supervisor: one trace over all workers, and over those that replace them (app/README.md rule 20)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import trio

from kafka_share_proxy.app.observing.trace_page import PATH
from kafka_share_proxy.app.workers import worker_client
from kafka_share_proxy.app.workers.worker_process import WorkerProcess
from kafka_share_proxy.feature.admin import NO_CLUSTER_YET, AdminRequest, Page, refused

Bodies = Mapping[int, Mapping[str, Any]]


class SupervisorTrace:
    """The page, over the pages of the workers."""

    def __init__(self, running: Mapping[int, WorkerProcess]) -> None:
        """`running`: workers by number, which may change."""
        self._running = running
        self._client = ""
        self._until = 0.0

    async def response(self, request: AdminRequest) -> Page | None:
        """Return the merged responses of the workers. None if there is no such page."""
        if request.method == "POST" and request.forbidden:
            return refused(HTTPStatus.FORBIDDEN, request.forbidden)
        target = "/".join(("", PATH, *(quote(part, safe=":,") for part in request.parts)))
        responses = await worker_client.request_all(self._running, request.method, target)
        pages = {number: (each.status, json.loads(each.body)) for number, each in responses.items()}
        good = {number: body for number, (status, body) in pages.items() if status == HTTPStatus.OK}
        if not good:
            return next(iter(pages.values()), NO_CLUSTER_YET)
        body = merged(good)
        if request.method == "POST":
            self._client, self._until = body["client"], trio.current_time() + body["seconds_left"]
        return HTTPStatus.OK, body

    async def join(self, worker: WorkerProcess) -> None:
        """Let a worker that has just begun to serve take part in the current trace."""
        seconds = self._until - trio.current_time()
        if seconds > 0:
            target = f"/{PATH}/begin/{quote(self._client, safe='')}/{seconds:.3f}"
            await worker_client.request(worker.admin, "POST", target)


def merged(bodies: Bodies) -> dict[str, Any]:
    """Return the traces of all workers as one. Each line gets the number of its worker."""
    lines = [(line, number) for number, body in bodies.items() for line in body["lines"]]
    every = list(bodies.values())
    return {
        "client": next((body["client"] for body in every if body["client"]), ""),
        "on": any(body["on"] for body in every),
        "ended": next((body["ended"] for body in every if body["ended"]), ""),
        "seconds_left": max(body["seconds_left"] for body in every),
        "connections_left_out": sum(body["connections_left_out"] for body in every),
        "lines": [f'{{"worker": {number}, {line[1:]}' for line, number in sorted(lines)],
        "position": ",".join(body["position"] for body in every),
    }
