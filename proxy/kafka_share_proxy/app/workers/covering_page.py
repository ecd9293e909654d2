"""Page /covers/PLACE of a worker, for its supervisor: accept the clients of a place whose worker has ended."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from kafka_share_proxy.app.workers.seat import SupervisorLink
from kafka_share_proxy.feature.admin import AdminRequest, Page, refused
from kafka_share_proxy.forwarding.data_plane import Plane

PATH = "covers"
BEGIN, END = "begin", "end"


class CoveringPage:
    """POST /covers/PLACE/begin and /covers/PLACE/end."""

    def __init__(self, supervisor: SupervisorLink, plane: Callable[[], Plane | None]) -> None:
        """`plane` returns None until the cluster has responded."""
        self._supervisor, self._plane = supervisor, plane

    async def response(self, request: AdminRequest) -> Page | None:
        """Return the response. None if there is no such page."""
        plane = self._plane()
        match request.method, *request.parts:
            case "POST", place, "begin" if plane is not None and place.isdecimal():
                return self._begin(plane, int(place))
            case "POST", place, "end" if plane is not None and place.isdecimal():
                plane.ports.uncover(int(place))
                return HTTPStatus.OK, {}
        return None

    def _begin(self, plane: Plane, place: int) -> Page:
        try:
            plane.ports.cover(place, partial(self._supervisor.listen, place=place))
        except OSError as error:
            return refused(HTTPStatus.CONFLICT, str(error))
        return HTTPStatus.OK, {}
