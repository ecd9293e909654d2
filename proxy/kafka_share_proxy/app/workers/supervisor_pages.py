"""Admin listener of a supervisor: requests are passed to the workers, and their responses are merged."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import h11

from kafka_share_proxy.app.observing import admin_listener, connections_page, status_html
from kafka_share_proxy.app.observing.admin_listener import (
    HTML,
    METRICS,
    METRICS_PATH,
    READ_ONLY,
    STATUS_PATHS,
    Response,
)
from kafka_share_proxy.app.observing.admin_pages import AdminPages
from kafka_share_proxy.app.observing.confirmations import Confirmations
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.workers import covering_page, giving_page, merged_pages, removing_page, worker_client
from kafka_share_proxy.app.workers.merged_metrics import MergedMetrics
from kafka_share_proxy.app.workers.worker_process import WorkerProcess
from kafka_share_proxy.feature.admin import Page, Pages, refused
from kafka_share_proxy.feature.metrics import Metrics

GROUPS = "/groups"
CONNECTIONS = f"/{connections_page.PATH}"
OF_WORKERS = (covering_page.PATH, giving_page.PATH, removing_page.PATH)
"""Pages of workers for their supervisor only."""
METHODS = ("GET", "HEAD", "POST")
Merge = Callable[[Mapping[int, Any]], Mapping[str, Any]]
"""Function that returns the page of the proxy, for those of the workers by number."""
OWN = -1
"""Number of the supervisor's own metrics."""


class SupervisorPages:
    """Source of the responses. See admin_listener.Site."""

    def __init__(
        self,
        running: Mapping[int, WorkerProcess],
        config: Config,
        own: Mapping[str, Pages],
        own_metrics: Metrics,
    ) -> None:
        """`running`: workers by number, which may change. `own`: pages of the supervisor itself."""
        self._running = running
        self._merged = MergedMetrics()
        self._own_metrics = own_metrics
        self._pages = _Pages(own, self._from_all, self._changed)
        self.confirmations = Confirmations(self._pages)
        self.apply_settings(config)

    def apply_settings(self, config: Config) -> None:
        """Use other settings."""
        self._pages.changes = config.admin_changes
        self.hosts = admin_listener.names_of(config)

    def ended(self, worker: WorkerProcess) -> None:
        """Keep what a worker has counted."""
        self._merged.ended(worker.number)

    async def response(self, request: h11.Request, peer: str) -> Response:
        """Return the response to a request. `peer`: address of the client."""
        method, target = request.method.decode("ascii", "replace"), request.target.decode("ascii", "replace")
        path = target.partition("?")[0]
        from_page = any(name == b"origin" for name, _ in request.headers)
        if method not in METHODS:
            return admin_listener.refusal(HTTPStatus.METHOD_NOT_ALLOWED, "only GET, HEAD and POST are served here")
        if method == "POST" or self._pages.has(path):
            page = await self._pages.response(method, path, peer=peer, from_page=from_page)
            if page is not None:
                return await admin_listener.page_response(page)
        return await self._read(path, target, may_change=self.confirmations.may_change(peer))

    async def _read(self, path: str, target: str, *, may_change: bool) -> Response:
        if path == "/livez":
            return _json(HTTPStatus.OK, {"alive": True, "workers": self._pids()})
        if path.encode() in STATUS_PATHS:
            return _status(await self._from_all(path if may_change else f"{path}?{READ_ONLY.decode()}"))
        responses = await self._from_all(target)
        if path.encode() == METRICS_PATH:
            return Response(HTTPStatus.OK, self._metrics(responses), METRICS)
        if path.startswith("/readyz"):
            return _readiness(responses)
        merge, good = _merge(path), _good(responses)
        if merge is not None and good:
            return _json(HTTPStatus.OK, merge({number: json.loads(each.body) for number, each in good.items()}))
        return _most_specific([*good.values(), *responses.values()])

    def _pids(self) -> dict[str, int | None]:
        return {str(number): worker.pid for number, worker in sorted(self._running.items())}

    def _metrics(self, responses: Mapping[int, Response]) -> bytes:
        texts = {number: each.body for number, each in _good(responses).items()}
        return self._merged.text({OWN: self._own_metrics.render()} | texts)

    async def _changed(self, target: str) -> Response:
        """Pass a request that changes something to the worker that has the share group, else to any."""
        responses = await self._from_all("/".join(target.split("/")[:3]))
        numbers = [number for number in (*_good(responses), *responses) if number in self._running]
        if not numbers:
            return _most_specific(())
        worker = self._running[numbers[0]]
        response = await worker_client.request(worker.admin, "POST", target)
        return response or admin_listener.refusal(HTTPStatus.BAD_GATEWAY, f"worker {worker.number} does not respond")

    async def _from_all(self, target: str) -> dict[int, Response]:
        """Return the responses of all workers that serve, by number."""
        return await worker_client.request_all(self._running, "GET", target)


class _Pages(AdminPages):
    """Pages of the supervisor itself, and those of workers as if they were its own, for changes and their forms."""

    def __init__(
        self,
        own: Mapping[str, Pages],
        read: Callable[[str], Awaitable[Mapping[int, Response]]],
        change: Callable[[str], Awaitable[Response]],
    ) -> None:
        super().__init__(own=own)
        self._read, self._change = read, change

    def has(self, path: str) -> bool:
        """Return True if the supervisor itself responds to this path."""
        return _is_below(path, (*self.paths, *OF_WORKERS))

    async def response(self, method: str, path: str, *, peer: str, from_page: bool) -> Page | None:
        if _is_below(path, OF_WORKERS):
            return refused(HTTPStatus.NOT_FOUND, "workers have this page for their supervisor only")
        if self.has(path):
            return await super().response(method, path, peer=peer, from_page=from_page)
        if method != "POST":
            responses = await self._read(path)
            return _page(_most_specific([*_good(responses).values(), *responses.values()]))
        forbidden = self.forbidden(peer, from_page=from_page)
        return refused(HTTPStatus.FORBIDDEN, forbidden) if forbidden else _page(await self._change(path))


def _is_below(path: str, pages: Iterable[str]) -> bool:
    return any(path == f"/{page}" or path.startswith(f"/{page}/") for page in pages)


def _page(response: Response) -> Page:
    return response.status, json.loads(response.body)


def _merge(path: str) -> Merge | None:
    """Return the function for a page to which every worker contributes. None if one worker has the page."""
    if path == CONNECTIONS or path.startswith(f"{CONNECTIONS}/"):
        return merged_pages.connections
    return merged_pages.groups if path.rstrip("/") == GROUPS else None


def _good(responses: Mapping[int, Response]) -> dict[int, Response]:
    return {number: each for number, each in responses.items() if each.status < HTTPStatus.BAD_REQUEST}


def _most_specific(responses: Sequence[Response]) -> Response:
    """Return the first response that knows more than that there is nothing."""
    specific = [each for each in responses if each.status != HTTPStatus.NOT_FOUND]
    none = admin_listener.refusal(HTTPStatus.SERVICE_UNAVAILABLE, "no worker responds")
    return next(iter((*specific, *responses)), none)


def _status(responses: Mapping[int, Response]) -> Response:
    pages = [(number, each.body.decode()) for number, each in _good(responses).items()]
    return Response(HTTPStatus.OK, merged_pages.status(pages).encode(), HTML, status_html.HEADERS)


def _readiness(responses: Mapping[int, Response]) -> Response:
    if any(each.status == HTTPStatus.NOT_FOUND for each in responses.values()):
        return _most_specific(list(responses.values()))
    probes = {number: (each.status == HTTPStatus.OK, json.loads(each.body)) for number, each in responses.items()}
    ready, body = merged_pages.readiness(probes)
    return _json(HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, body)


def _json(status: HTTPStatus, body: Mapping[str, Any]) -> Response:
    return Response(status, json.dumps(body, indent=2).encode() + b"\n")
