"""Pages /reload and /upgrade of the admin listener: POST applies what is written in the settings and TLS files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from kafka_share_proxy.app.settings.live_settings import Reloaded
from kafka_share_proxy.feature.admin import AdminRequest, Page, refused
from kafka_share_proxy.feature.errors import ConfigError

PATH, UPGRADE_PATH = "reload", "upgrade"
"""/upgrade replaces all workers in any case."""
REASON = "the admin listener"
"""Source of the reload in the log."""


async def response(reload: Callable[[str], Awaitable[Reloaded]], request: AdminRequest) -> Page:
    """Return the names of changed settings, or status 422 with the mistakes."""
    if request.parts or request.method != "POST":
        return refused(HTTPStatus.METHOD_NOT_ALLOWED, "only POST applies what is written now")
    if request.forbidden:
        return refused(HTTPStatus.FORBIDDEN, request.forbidden)
    try:
        reloaded = await reload(REASON)
    except ConfigError as error:
        return refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
    return HTTPStatus.OK, {"changed": reloaded.changed, "needs_restart": reloaded.needs_restart}


async def no_workers(_request: AdminRequest) -> Page:
    """Refuse an upgrade where one process serves all clients."""
    reason = "there is a single process: restart it with the new version, or have several workers (setting workers)"
    return refused(HTTPStatus.CONFLICT, reason)
