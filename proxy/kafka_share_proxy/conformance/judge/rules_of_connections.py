"""Rules for bytes, headers, versions and authentication."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kafka_share_proxy.conformance.judge.events import FrameRefused, ReceivedRequest
from kafka_share_proxy.conformance.judge.history import History
from kafka_share_proxy.conformance.judge.rule import ClientRules
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey

FIRST = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE})
"""Requests that may precede ApiVersions: KIP-35 lets a client send SaslHandshake first."""
LOGIN = FIRST | {ApiKey.SASL_AUTHENTICATE}
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

RULES = ClientRules()


@RULES.rule(
    "request-undecodable", "message definitions; RequestContext.parseRequest closes the connection", on=FrameRefused
)
def _undecodable(event: FrameRefused, history: History) -> Iterator[str]:
    """A request has the fields of its version, and every length is within the request."""
    lowest, highest = history.offered.get(event.key, (0, -1))
    if lowest <= event.version <= highest:
        yield f"{_name(event.key)} v{event.version}: {event.reason}"


@RULES.rule("version-not-offered", "KIP-35", on=FrameRefused)
def _not_offered(event: FrameRefused, history: History) -> Iterator[str]:
    """A client sends only versions that ApiVersions offers."""
    lowest, highest = history.offered.get(event.key, (0, -1))
    if event.key in history.offered and event.key != ApiKey.API_VERSIONS and not lowest <= event.version <= highest:
        yield f"{_name(event.key)} v{event.version}, offered are {lowest} to {highest}"


@RULES.rule("api-not-offered", "KIP-35", on=FrameRefused)
def _api_not_offered(event: FrameRefused, history: History) -> Iterator[str]:
    """A client sends only requests that ApiVersions offers."""
    if event.key not in history.offered:
        yield f"{_name(event.key)} (key {event.key}) is not offered"


@RULES.rule("unread-bytes", "message definitions")
def _unread(event: ReceivedRequest, _: History) -> Iterator[str]:
    """A request ends with its last field."""
    if event.unread:
        yield f"{event.unread} bytes after the last field of {_name(event.key)} v{event.version}"


@RULES.rule("api-versions-missing", "KIP-35", severity="advice")
def _first(event: ReceivedRequest, history: History) -> Iterator[str]:
    """A client requests the versions of each connection before it sends other requests."""
    connection = history.connection(event)
    if event.key not in FIRST and connection.requests == 0 and not connection.negotiated:
        yield f"the first request of the connection is {_name(event.key)}"


@RULES.rule("software-name-invalid", "KIP-511; ApiVersionsRequest.isValid", keys=frozenset({ApiKey.API_VERSIONS}))
def _software(event: ReceivedRequest, _: History) -> Iterator[str]:
    """Name and version of the client software are letters, digits, '-' and '.'."""
    if event.version >= 3:
        for name in (event.request.client_software_name, event.request.client_software_version):
            if not SOFTWARE.fullmatch(name):
                yield f"{name!r} does not match {SOFTWARE.pattern}"


@RULES.rule("request-before-login", "KIP-43; SaslServerAuthenticator")
def _before_login(event: ReceivedRequest, _: History) -> Iterator[str]:
    """A client completes SASL before it sends other requests."""
    if event.must_authenticate and event.key not in LOGIN:
        yield f"{_name(event.key)} before the login is complete"


@RULES.rule("login-without-handshake", "KIP-152; SaslServerAuthenticator", keys=frozenset({ApiKey.SASL_AUTHENTICATE}))
def _login_order(event: ReceivedRequest, history: History) -> Iterator[str]:
    """SaslAuthenticate follows a SaslHandshake that was accepted."""
    if not history.connection(event).handshake:
        yield "no SaslHandshake that was accepted precedes it"


@RULES.rule("correlation-id-repeated", "RequestHeader.json; NetworkClient.nextCorrelationId", severity="advice")
def _correlation(event: ReceivedRequest, history: History) -> Iterator[str]:
    """Each request of a connection has a correlation id that the one before does not have."""
    if history.connection(event).last_correlation_id == event.correlation_id:
        yield f"two consecutive requests have the correlation id {event.correlation_id}"


@RULES.rule("client-id-changed", "ClientQuotaManager: quotas and metrics are by client id", severity="advice")
def _client_id(event: ReceivedRequest, history: History) -> Iterator[str]:
    """All requests of a connection have the same client id."""
    before = history.connection(event).client_id
    if before is not None and before != event.client_id:
        yield f"the client id changes from {before!r} to {event.client_id!r}"


def _name(key: int) -> str:
    return registry.API_KEYS.get(key, "unknown API")
