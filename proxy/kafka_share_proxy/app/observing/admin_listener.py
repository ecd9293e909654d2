"""Admin listener: the status page, /livez, /readyz and its parts, /metrics and the features' pages over HTTP/1.1.

It is deliberately small (with h11): GET, HEAD and POST, no request bodies except those of confirmations, one response
per connection, each limited in bytes and time. A request with a foreign name in its Host header is refused: a web page
may let its own name resolve to this machine (DNS rebinding), and could then read the responses.
"""

from __future__ import annotations

import importlib
import ipaddress
import json
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from itertools import islice
from typing import NamedTuple, Protocol

import h11
import trio

from kafka_share_proxy.app.observing import confirmation_html, confirmations, observe, status_html
from kafka_share_proxy.app.observing.admin_pages import AdminPages
from kafka_share_proxy.app.observing.confirmations import Confirmations, Sender
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.feature.admin import Page
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.proxy_headers import Network, is_among, with_advice
from kafka_share_proxy.loop.trio_waiting import until_settled
from kafka_share_proxy.wire import proxy_header
from kafka_share_proxy.wire.errors import ProxyHeaderRefused
from kafka_share_proxy.wire.values import Address

REQUEST_BYTES_MAX = 16 << 10
"""Maximum bytes of request line and headers together."""
REQUEST_TIMEOUT_S = 10.0
"""Seconds from the connection to the last byte of the response."""
CONNECTIONS_MAX = 32
"""Maximum number of connections, for a probe and a few scrapers. A further one is closed immediately."""
READ_BYTES = 4096
LOOKUP_WAIT_S = 2.0
"""Maximum seconds that /metrics and the status page wait for look-ups at brokers. After that, they show the results of
the look-up before.
"""
TOKENS_PER_STEP = 4096
"""Tokens of JSON that are encoded in one step."""

METRICS_PATH = b"/metrics"
STATUS_PATHS = (b"/", b"/status")
READ_ONLY = b"read-only"
"""Query of a status page without links to changes."""
METRICS_LIBRARY = "prometheus_client"

JSON = "application/json; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"
HTML = "text/html; charset=utf-8"


class Response(NamedTuple):
    """Response of the admin listener."""

    status: HTTPStatus
    body: bytes
    content_type: str = JSON
    headers: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """Sources of the responses to GET requests."""

    alive: Callable[[], Mapping[str, object]]
    ready: Mapping[bytes, Callable[[], tuple[bool, Mapping[str, object]]]]
    """True if something can be served, and the details."""
    metrics: Callable[[], Iterable[bytes]]
    """Text of /metrics, in pieces that each take little time to make."""
    lookups: Sequence[Callable[[], Promise[None]]] = ()
    """Look-ups at brokers that figures need. None of them fails."""
    status: Callable[[bool], Iterable[bytes]] | None = None
    """The status page, in pieces, with links to changes if the argument is True. None: there is none."""
    confirmations: Confirmations | None = None
    """Changes that the status page links to. None: there are none."""
    pages: AdminPages = field(default_factory=AdminPages)
    hosts: frozenset[str] = frozenset({"localhost"})
    """Host names of this listener (`own_names`). Addresses are always accepted."""

    async def response(self, request: h11.Request, peer: str) -> Response:
        """See Site."""
        return await _response(request, self, peer)


class Site(Protocol):
    """Source of the responses of one listener."""

    @property
    def hosts(self) -> frozenset[str]:
        """Host names of this listener (`own_names`). Addresses are always accepted."""

    @property
    def confirmations(self) -> Confirmations | None:
        """Changes that the status page links to. None: there are none."""

    async def response(self, request: h11.Request, peer: str) -> Response:
        """Return the response to any other request. `peer`: address of the client, empty if unknown."""


async def open_admin(address: Address, notes: Notes) -> list[trio.SocketListener]:
    """Open the listener, and log its address. Raises OSError if the address is in use or not of this machine."""
    try:
        opened = await trio.open_tcp_listeners(address.port, host=address.host)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {address} (admin): {error.strerror or error}") from None
    notes(observe.ADMIN_LISTENING, address=str(address))
    return opened


async def serve_admin(
    listeners: list[trio.SocketListener],
    site: Site,
    notes: Notes,
    balancers: Sequence[Network] = (),
    timeout_s: float | None = None,
) -> None:
    """Serve requests until cancelled.

    `balancers`: networks of load balancers, whose connections begin with a PROXY protocol header. `timeout_s`: see
    REQUEST_TIMEOUT_S, which is the default.
    """
    open_now: set[int] = set()
    respond_one = partial(_respond_one, site=site, balancers=balancers)
    limit_s = REQUEST_TIMEOUT_S if timeout_s is None else timeout_s
    serve_one = partial(_serve_one, respond_one=respond_one, notes=notes, open_now=open_now, timeout_s=limit_s)
    await trio.serve_listeners(serve_one, listeners)


async def _serve_one(
    stream: trio.abc.Stream,
    *,
    respond_one: Callable[[trio.abc.Stream], Awaitable[None]],
    notes: Notes,
    open_now: set[int],
    timeout_s: float,
) -> None:
    """Serve one connection. No failure of a client may end the proxy."""
    if len(open_now) >= CONNECTIONS_MAX:
        await trio.aclose_forcefully(stream)
        return
    open_now.add(id(stream))
    try:
        with trio.move_on_after(timeout_s):
            await respond_one(stream)
    except h11.RemoteProtocolError as error:
        notes("admin-bad-request", reason=str(error))
    except ProxyHeaderRefused as error:
        host = _peer(stream)
        notes("proxy-header-refused", client=host, reason=with_advice(error, host, "proxy_protocol.admin"))
    except (trio.BrokenResourceError, OSError):
        pass  # the client closed the connection, and only the client needed the response
    finally:
        open_now.discard(id(stream))
        await trio.aclose_forcefully(stream)


async def _respond_one(stream: trio.abc.Stream, site: Site, balancers: Sequence[Network]) -> None:
    client = await _client(stream, balancers)
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)
    try:
        request = await _request(stream, http)
    except h11.RemoteProtocolError as error:
        if http.our_state is h11.IDLE:
            status = HTTPStatus(error.error_status_hint)
            await stream.send_all(_bytes(http, refusal(status, str(error)), head=False))
            await _linger(stream)
        raise
    if request is not None:
        response = _foreign_name(request, site.hosts) or await _confirmation(request, site, client, stream, http)
        if response is None:
            response = await site.response(request, client)
        await stream.send_all(_bytes(http, response, head=request.method == b"HEAD"))
        await _linger(stream)


async def _request(stream: trio.abc.Stream, http: h11.Connection) -> h11.Request | None:
    """Return the request, or None if the client closed the connection."""
    while True:
        event = http.next_event()
        if isinstance(event, h11.Request):
            return event
        if event is not h11.NEED_DATA:
            return None
        http.receive_data(bytes(await stream.receive_some(READ_BYTES)))


async def _body(stream: trio.abc.Stream, http: h11.Connection, limit: int) -> bytes | None:
    """Return the body of the request. None if it is longer, or the client closed the connection."""
    body = b""
    while len(body) <= limit:
        event = http.next_event()
        if isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            return body
        elif event is h11.NEED_DATA:
            http.receive_data(bytes(await stream.receive_some(READ_BYTES)))
        else:
            return None
    return None


async def _linger(stream: trio.abc.Stream) -> None:
    """Read the remaining input: closing with unread bytes would reset the connection, and lose the response."""
    if isinstance(stream, trio.SocketStream):
        await stream.send_eof()
    allowed = REQUEST_BYTES_MAX
    while allowed > 0:
        chunk = await stream.receive_some(READ_BYTES)
        if not chunk:
            return
        allowed -= len(chunk)


async def _client(stream: trio.abc.Stream, balancers: Sequence[Network]) -> str:
    """Return the address of the client; empty if unknown. A load balancer names it."""
    host, header = _peer(stream), b""
    if not host or not is_among(balancers, host):
        return host
    while (missing := proxy_header.length(header) - len(header)) > 0:
        received = await stream.receive_some(missing)
        if not received:
            raise trio.BrokenResourceError
        header += received
    return proxy_header.client_of(header) or host


def _peer(stream: trio.abc.Stream) -> str:
    """Return the address of the client; empty if unknown."""
    if not isinstance(stream, trio.SocketStream):
        return ""
    try:
        peer = stream.socket.getpeername()
    except OSError:
        return ""
    return str(peer[0]) if peer else ""  # a Unix socket has no address


def own_names(*configured: str) -> frozenset[str]:
    """Return accepted host names in lower case."""
    return frozenset(name.lower() for name in (*configured, socket.gethostname(), "localhost"))


def names_of(config: Config) -> frozenset[str]:
    """Return the host names of the admin listener with these settings."""
    host = [] if config.admin is None else [config.admin.host]
    return own_names(*host, config.advertised_host, *config.admin_hosts)


def _foreign_name(request: h11.Request, hosts: frozenset[str]) -> Response | None:
    """Return the refusal of a request by another host name. None if it is ours."""
    if _is_ours(request, hosts):
        return None
    reason = "this is no name of the admin listener: call it by its address, or name it in admin_hosts"
    return refusal(HTTPStatus.MISDIRECTED_REQUEST, reason)


async def page_response(page: Page) -> Response:
    """Return the response with the JSON of a page, which is encoded in steps."""
    return Response(page[0], await _in_steps(_pieces(page[1])))


def refusal(status: HTTPStatus, reason: str) -> Response:
    """Return a response with a reason as JSON."""
    return Response(status, _json({"reason": reason}))


def _is_ours(request: h11.Request, hosts: frozenset[str]) -> bool:
    """Check the Host header, which HTTP/1.0 clients may omit."""
    for name, value in request.headers:
        if name == b"host":
            host = _without_port(value.decode("ascii", "replace")).lower()
            return host in hosts or host.removesuffix(".") in hosts or _is_address(host)
    return True


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


async def _response(request: h11.Request, probes: Probes, peer: str) -> Response:
    path = request.target.partition(b"?")[0]
    if path == METRICS_PATH and METRICS_LIBRARY not in sys.modules:
        # Import it here, because a proxy without scrapes does not need these several MiB. The import takes a tenth of a
        # second.
        await trio.to_thread.run_sync(importlib.import_module, METRICS_LIBRARY)
    from_page = any(name == b"origin" for name, _ in request.headers)
    method, words = request.method.decode("ascii", "replace"), path.decode("ascii", "replace")
    page = await probes.pages.response(method, words, peer=peer, from_page=from_page)
    if page is not None:
        return await page_response(page)
    if path == METRICS_PATH and request.method in (b"GET", b"HEAD"):
        await _finish_lookups(probes.lookups)
        return Response(HTTPStatus.OK, await _in_steps(probes.metrics()), METRICS)
    if path in STATUS_PATHS and probes.status is not None and request.method in (b"GET", b"HEAD"):
        await _finish_lookups(probes.lookups)
        may_change = probes.confirmations is not None and probes.confirmations.may_change(peer)
        is_offered = may_change and request.target.partition(b"?")[2] != READ_ONLY
        return Response(HTTPStatus.OK, await _in_steps(probes.status(is_offered)), HTML, status_html.HEADERS)
    return _probe_response(request, path, probes)


async def _confirmation(
    request: h11.Request, site: Site, client: str, stream: trio.abc.Stream, http: h11.Connection
) -> Response | None:
    """Return the response to a request for the confirmation of a change, or None for any other request."""
    path = request.target.partition(b"?")[0].decode("ascii", "replace").removeprefix(status_html.CONFIRM)
    if site.confirmations is None or not request.target.startswith(f"{status_html.CONFIRM}/".encode()):
        return None
    sent = {name.decode(): value.decode("ascii", "replace") for name, value in request.headers}
    sender = Sender(client, *(sent.get(name, "") for name in ("host", "origin", "sec-fetch-site")))
    if request.method in (b"GET", b"HEAD"):
        shown = await site.confirmations.form(path, sender)
    elif request.method == b"POST":
        body = await _body(stream, http, confirmations.BODY_MAX)
        if body is None:
            reason = f"the form has at most {confirmations.BODY_MAX} bytes"
            return Response(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _json({"reason": reason}))
        shown = await site.confirmations.change(path, sender, body)
    else:
        return Response(HTTPStatus.METHOD_NOT_ALLOWED, _json({"reason": "only GET, HEAD and POST are served here"}))
    return Response(shown.status, await _in_steps(shown.body), HTML, confirmation_html.HEADERS)


async def _finish_lookups(begins: Iterable[Callable[[], Promise[None]]]) -> None:
    """Begin all look-ups at brokers, and wait for them."""
    with trio.move_on_after(LOOKUP_WAIT_S):
        for lookup in [begin() for begin in begins]:
            await until_settled(lookup)


def _probe_response(request: h11.Request, path: bytes, probes: Probes) -> Response:
    if request.method not in (b"GET", b"HEAD"):
        return Response(HTTPStatus.METHOD_NOT_ALLOWED, _json({"reason": "only GET and HEAD are served"}))
    if path == b"/livez":
        return Response(HTTPStatus.OK, _json(probes.alive()))
    if path in probes.ready:
        ready, body = probes.ready[path]()
        return Response(HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, _json(body))
    return Response(HTTPStatus.NOT_FOUND, _json({"reason": _available_paths(probes)}))


def _available_paths(probes: Probes) -> str:
    paths = ["/livez", *(path.decode() for path in probes.ready), METRICS_PATH.decode()]
    paths += [path.decode() for path in STATUS_PATHS[1:] if probes.status is not None]
    *listed, last = (*paths, *(f"/{path}" for path in probes.pages.paths))
    return f"there are {', '.join(listed)} and {last}"


def _bytes(http: h11.Connection, response: Response, *, head: bool) -> bytes:
    headers = [
        ("Content-Type", response.content_type),
        ("Content-Length", str(len(response.body))),
        ("Connection", "close"),
        ("Cache-Control", "no-store"),
        *response.headers,
    ]
    if response.status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers.append(("Allow", "GET, HEAD"))
    start = h11.Response(status_code=response.status, headers=headers, reason=response.status.phrase.encode())
    body = b"" if head else response.body
    return b"".join(http.send(event) or b"" for event in (start, h11.Data(data=body), h11.EndOfMessage()))


def _json(body: Mapping[str, object]) -> bytes:
    return b"".join(_pieces(body))


async def _in_steps(pieces: Iterable[bytes]) -> bytes:
    """Join pieces, and serve clients in between: 10,000 groups take a tenth of a second."""
    written: list[bytes] = []
    for piece in pieces:
        written.append(piece)
        await trio.lowlevel.checkpoint()
    return b"".join(written)


def _pieces(body: Mapping[str, object]) -> Iterator[bytes]:
    """Encode JSON in pieces of TOKENS_PER_STEP tokens each."""
    words = json.JSONEncoder(indent=2, default=str).iterencode(body)
    while piece := "".join(islice(words, TOKENS_PER_STEP)):
        yield piece.encode()
    yield b"\n"
