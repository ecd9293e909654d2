"""Page /removes/NUMBER of a worker, for its supervisor: remove a worker that has ended from the group of proxies."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from kafka_share_proxy.app.workers import places
from kafka_share_proxy.app.workers.seat import Seat
from kafka_share_proxy.durable.state_home import StateHome
from kafka_share_proxy.feature.admin import AdminRequest, Page, refused

PATH = "removes"


class RemovingPage:
    """POST /removes/NUMBER, after the process of worker NUMBER has ended."""

    def __init__(self, seat: Seat, home: Callable[[], StateHome | None]) -> None:
        """`home` returns None until the cluster has responded, and if no state is stored."""
        self._folder, self._home = Path(seat.links).parent, home
        self._names = {path: name for name, path in seat.paths.items()}

    async def response(self, request: AdminRequest) -> Page | None:
        """Return 200, or 409 if the worker is not a member. None if there is no such page."""
        home = self._home()
        match request.method, *request.parts:
            case "POST", number if home is not None and number.isdecimal():
                name = self._names.get(places.links(self._folder, int(number)), "")
                if home.member_ended(name):
                    return HTTPStatus.OK, {}
                return refused(HTTPStatus.CONFLICT, f"worker {number} is not a member of the group of proxies")
        return None
