"""Page /connections of the admin listener, and /connections/CLIENT for one address or client id."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from kafka_share_proxy.feature.admin import NO_CLUSTER_YET, AdminRequest, Page, refused
from kafka_share_proxy.forwarding import connection_list
from kafka_share_proxy.forwarding.data_plane import Plane

PATH = "connections"


class ConnectionsPage:
    """The page, over the data plane once there is one."""

    def __init__(self, plane: Callable[[], Plane | None]) -> None:
        self._plane = plane

    async def response(self, request: AdminRequest) -> Page | None:
        """Return the connections. None if there is no such page."""
        plane, parts = self._plane(), request.parts
        if len(parts) > 1:
            return None
        if request.method == "POST":
            return refused(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are served")
        if plane is None:
            return NO_CLUSTER_YET
        return HTTPStatus.OK, connection_list.listed(plane.connections(), plane.reactor.now(), *parts)
