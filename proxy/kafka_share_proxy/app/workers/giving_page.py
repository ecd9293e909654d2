"""Page /gives of a worker, for its supervisor: give connections to other workers (app/README.md rule 23)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_share_proxy.app.workers import places
from kafka_share_proxy.app.workers.seat import Seat
from kafka_share_proxy.durable.state_home import StateHome
from kafka_share_proxy.feature.admin import AdminRequest, Page
from kafka_share_proxy.forwarding import fair_share
from kafka_share_proxy.forwarding.data_plane import Plane
from kafka_share_proxy.forwarding.fair_share import FairShare, WorkerPlaces

if TYPE_CHECKING:
    from kafka_share_proxy.fleet.links import FleetLinks
    from kafka_share_proxy.forwarding.connection import ForwardedConnection

PATH = "gives"


def target(numbers: Sequence[int], new: int | None = None) -> str:
    """Return the path of the page. `numbers`: those of all workers by place. `new`: place of one that has none."""
    page = f"/{PATH}/{','.join(map(str, numbers))}"
    return page if new is None else f"{page}/{new}"


class GivingPage:
    """POST /gives/NUMBERS: those that others should serve. POST /gives/NUMBERS/PLACE: also a share for this place."""

    def __init__(self, seat: Seat, plane: Callable[[], Plane | None], home: Callable[[], StateHome | None]) -> None:
        """`plane` and `home` return None until the cluster has responded."""
        self._number, self._folder, self._plane, self._home = seat.number, Path(seat.links).parent, plane, home
        self._share = FairShare()

    async def response(self, request: AdminRequest) -> Page | None:
        """Return the number of connections. None if there is no such page."""
        plane, home = self._plane(), self._home()
        links = None if home is None else home.links
        numbers = _numbers(request.parts)
        if request.method != "POST" or plane is None or links is None or self._number not in numbers:
            return None
        match request.parts[1:]:
            case []:
                return self._give(plane, links, numbers, None)
            case [new] if new.isdecimal() and int(new) < len(numbers):
                return self._give(plane, links, numbers, int(new))
        return None

    def _give(self, plane: Plane, links: FleetLinks, numbers: list[int], new: int | None) -> Page:
        of_all = WorkerPlaces(numbers.index(self._number), len(numbers), plane.ports.node_ids)
        placements = self._share.misplaced(plane.connections(), of_all, plane.reactor.now())
        if new is not None:
            placements += fair_share.share_of(new, plane.connections(), of_all)
        paths = [places.links(self._folder, number) for number in numbers]

        def send(place: int, connection: ForwardedConnection) -> bool:
            return links.give(paths[place], connection)

        plane.give(placements, send)
        return HTTPStatus.OK, {"given": len(placements)}


def _numbers(parts: Sequence[str]) -> list[int]:
    """Return the numbers in the first part. Empty if these are none."""
    numbers = parts[0].split(",") if parts else []
    return [int(number) for number in numbers] if all(map(str.isdecimal, numbers)) else []
