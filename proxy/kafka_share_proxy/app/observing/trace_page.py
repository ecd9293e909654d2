"""Page /trace of the admin listener: begin and end a trace of one client, and read its lines."""

from __future__ import annotations

import math
from collections.abc import Callable
from http import HTTPStatus

from kafka_share_proxy.app.settings.config import TraceSettings
from kafka_share_proxy.feature.admin import NO_CLUSTER_YET, AdminRequest, Page, refused
from kafka_share_proxy.forwarding.client_trace.client_trace import ClientTrace, TraceLimits
from kafka_share_proxy.forwarding.data_plane import Plane

PATH = "trace"


class TracePage:
    """GET /trace and /trace/after/POSITION, POST /trace/begin/CLIENT[/SECONDS] and /trace/end."""

    def __init__(self, plane: Callable[[], Plane | None], settings: Callable[[], TraceSettings], worker: int) -> None:
        """`worker`: number of this process in positions. A position is WORKER:LINES, several joined by commas."""
        self._plane, self._settings, self._worker = plane, settings, worker

    async def response(self, request: AdminRequest) -> Page | None:
        """Return the state of the trace and some of its lines. None if there is no such page."""
        plane = self._plane()
        if plane is None:
            return NO_CLUSTER_YET
        if request.method == "POST":
            return self._change(plane.client_trace, request)
        match request.parts:
            case []:
                return self._read(plane.client_trace, 0)
            case ["after", position]:
                return self._read(plane.client_trace, lines_of(position, self._worker))
        return None

    def _read(self, trace: ClientTrace, first: int) -> Page:
        body = trace.after(first)
        return HTTPStatus.OK, {**body, "position": f"{self._worker}:{first + len(body['lines'])}"}

    def _change(self, trace: ClientTrace, request: AdminRequest) -> Page | None:
        if request.forbidden:
            return refused(HTTPStatus.FORBIDDEN, request.forbidden)
        settings = self._settings()
        match request.parts:
            case ["end"]:
                trace.finish("it was ended by the admin listener")
            case ["begin", client] if client:
                trace.begin(client, limits(settings, settings.seconds))
            case ["begin", client, seconds] if client and (number := seconds_of(seconds, settings)) is not None:
                trace.begin(client, limits(settings, number))
            case ["begin", _client, _seconds]:
                text = f"a trace takes more than 0 and at most {settings.seconds_max:g} s (trace.seconds_max)"
                return refused(HTTPStatus.UNPROCESSABLE_ENTITY, text)
            case _:
                return None
        return self._read(trace, 0)


def limits(settings: TraceSettings, seconds: float) -> TraceLimits:
    """Return the limits of a trace that takes some seconds."""
    return TraceLimits(seconds=seconds, lines=settings.lines, bytes=settings.bytes)


def seconds_of(text: str, settings: TraceSettings) -> float | None:
    """Return the duration of a trace. None if it is invalid."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and 0 < seconds <= settings.seconds_max else None


def lines_of(position: str, worker: int) -> int:
    """Return the number of lines that were read of a worker's trace. 0 if the position does not name it."""
    for part in position.split(","):
        number, _, lines = part.partition(":")
        if number == str(worker) and lines.isdecimal():
            return int(lines)
    return 0
