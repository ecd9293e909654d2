"""Port between the admin listener and the features: pages below the paths that a feature declares."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

Page = tuple[HTTPStatus, Mapping[str, Any]]
"""Status and JSON object of a response."""


class AdminRequest(NamedTuple):
    """Request for a page."""

    method: str
    """GET, HEAD or POST."""
    parts: Sequence[str] = ()
    """Decoded parts of the path after the path of the feature."""
    forbidden: str = ""
    """Reason why the request may not change anything (`admin_changes`). Empty if it may."""


Pages = Callable[[AdminRequest], Awaitable[Page | None]]
"""Function that returns the response, or None if there is no such page."""


def preview(change: str, effect: str, button: str, **facts: Any) -> Page:
    """Return the response to a GET of a change, which the status page shows before the change is made."""
    return HTTPStatus.OK, {"change": change, "effect": effect, "button": button, **facts}


def refused(status: HTTPStatus, reason: str) -> Page:
    return status, {"reason": reason}


NO_CLUSTER_YET = refused(HTTPStatus.SERVICE_UNAVAILABLE, "the cluster has not responded yet")
"""Response of pages that need the cluster."""
