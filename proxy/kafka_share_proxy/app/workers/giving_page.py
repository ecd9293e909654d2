"""Page /gives/NUMBER/WORKERS of a worker, for its supervisor: give connections to the worker that replaced another."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path

from kafka_share_proxy.app.workers import places
from kafka_share_proxy.app.workers.seat import Seat
from kafka_share_proxy.durable.state_home import StateHome
from kafka_share_proxy.feature.admin import AdminRequest, Page
from kafka_share_proxy.forwarding.data_plane import Plane

PATH = "gives"


class GivingPage:
    """POST /gives/NUMBER/WORKERS: one of WORKERS connections, to the worker NUMBER."""

    def __init__(self, seat: Seat, plane: Callable[[], Plane | None], home: Callable[[], StateHome | None]) -> None:
        """`plane` and `home` return None until the cluster has responded."""
        self._folder, self._plane, self._home = Path(seat.links).parent, plane, home

    async def response(self, request: AdminRequest) -> Page | None:
        """Return the number of connections. None if there is no such page."""
        plane, home = self._plane(), self._home()
        links = None if home is None else home.links
        match request.method, *request.parts:
            case "POST", number, workers if plane and links and number.isdecimal() and workers.isdecimal():
                path = places.links(self._folder, int(number))
                return HTTPStatus.OK, {"given": plane.give(max(int(workers), 1), partial(links.give, path))}
        return None
