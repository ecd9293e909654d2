"""Confirmation of changes that the status page links to (app/README.md rule 18).

GET /status/confirm/PATH shows what a POST of the feature's page PATH would change, and a form. A POST of that form
makes the change, if a browser sent it from a page of this process.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from kafka_share_proxy.app.observing import confirmation_html
from kafka_share_proxy.app.observing.admin_pages import AdminPages
from kafka_share_proxy.app.observing.status_html import CONFIRM

BODY_MAX = 1024
"""Maximum bytes of the form."""
VALID_S = 600
"""Seconds from the page with the form to its POST."""
SECRET_BYTES = 32
FIELD = "confirmation"
"""Field of the form with the token."""
FIELDS_MAX = 4
OLD_FORM = "this form is older than 10 minutes, or of another process: open it again from the status page"
NO_CHANGE = "there is no such change"
FOREIGN = "the form was not sent from a page of this address"


class Sender(NamedTuple):
    """Address and headers of the sender of a request."""

    peer: str
    """Address. Empty if unknown."""
    host: str
    """Host header. Empty if missing."""
    origin: str
    """Origin header. Empty if missing."""
    site: str
    """Sec-Fetch-Site header. Empty if missing: browsers send it to HTTPS and this machine only."""


class HtmlPage(NamedTuple):
    """Page with its HTTP status."""

    status: HTTPStatus
    body: Iterator[bytes]


class Confirmations:
    """Pages with a form, and the changes that they make."""

    def __init__(self, pages: AdminPages, now: Callable[[], float] = time.monotonic) -> None:
        self._pages = pages
        self._now = now
        self._secret = secrets.token_bytes(SECRET_BYTES)

    def may_change(self, peer: str) -> bool:
        """Return True if a client of this address may change something (`admin_changes`)."""
        return not self._pages.forbidden(peer, from_page=False)

    async def form(self, path: str, sender: Sender) -> HtmlPage:
        """Return the page with the form. `path`: the change, percent-encoded."""
        forbidden = self._pages.forbidden(sender.peer, from_page=False)
        if forbidden:
            return _refused(HTTPStatus.FORBIDDEN, forbidden)
        page = await self._pages.response("GET", path, peer=sender.peer, from_page=False)
        status, preview = (HTTPStatus.OK, {}) if page is None else page
        if status != HTTPStatus.OK:
            return _refused(status, str(preview["reason"]))
        if "change" not in preview:
            return _refused(HTTPStatus.NOT_FOUND, NO_CHANGE)
        issued = int(self._now())
        html = confirmation_html.form(preview, f"{CONFIRM}{path}", {FIELD: f"{issued}.{self._signature(issued, path)}"})
        return HtmlPage(HTTPStatus.OK, html)

    async def change(self, path: str, sender: Sender, body: bytes) -> HtmlPage:
        """Make the change, and return the page with its result."""
        if sender.origin not in (f"http://{sender.host}", f"https://{sender.host}") or not sender.host:
            return _refused(HTTPStatus.FORBIDDEN, FOREIGN)
        if sender.site not in ("", "same-origin"):
            return _refused(HTTPStatus.FORBIDDEN, FOREIGN)
        if not self._is_ours(path, body):
            return _refused(HTTPStatus.FORBIDDEN, OLD_FORM)
        page = await self._pages.response("POST", path, peer=sender.peer, from_page=False)
        if page is None:
            return _refused(HTTPStatus.NOT_FOUND, NO_CHANGE)
        status, result = page
        return HtmlPage(status, confirmation_html.result(status, result))

    def _signature(self, issued: int, path: str) -> str:
        return hmac.new(self._secret, f"{issued} {path}".encode(), hashlib.sha256).hexdigest()

    def _is_ours(self, path: str, body: bytes) -> bool:
        """Return True if the form has a token of this process, for this change, that is not too old."""
        issued, _, signature = _token(body).partition(".")
        if not issued.isascii() or not issued.isdecimal() or self._now() - int(issued) > VALID_S:
            return False
        return hmac.compare_digest(signature.encode(), self._signature(int(issued), path).encode())


def _token(body: bytes) -> str:
    """Return the token of a form. Empty if there is none."""
    try:
        fields = parse_qs(body.decode("ascii", "replace"), max_num_fields=FIELDS_MAX)
    except ValueError:
        return ""
    return fields.get(FIELD, [""])[0]


def _refused(status: HTTPStatus, reason: str) -> HtmlPage:
    body: Mapping[str, Any] = {"reason": reason}
    return HtmlPage(status, confirmation_html.result(status, body))
