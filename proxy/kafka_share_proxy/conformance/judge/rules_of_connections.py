"""Rules for bytes, headers, versions and authentication."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kafka_share_proxy.conformance.judge.events import FrameRefused, ReceivedRequest
from kafka_share_proxy.conformance.judge.history import History
from kafka_share_proxy.conformance.judge.rule import ClientRule
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey

FIRST = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE})
"""Requests that may precede ApiVersions: KIP-35 lets a client send SaslHandshake first."""
LOGIN = FIRST | {ApiKey.SASL_AUTHENTICATE}
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def _undecodable(event: FrameRefused, history: History) -> Iterator[str]:
    lowest, highest = history.offered.get(event.key, (0, -1))
    if lowest <= event.version <= highest:
        yield f"{_name(event.key)} v{event.version}: {event.reason}"


def _not_offered(event: FrameRefused, history: History) -> Iterator[str]:
    lowest, highest = history.offered.get(event.key, (0, -1))
    if event.key in history.offered and event.key != ApiKey.API_VERSIONS and not lowest <= event.version <= highest:
        yield f"{_name(event.key)} v{event.version}, offered are {lowest} to {highest}"


def _api_not_offered(event: FrameRefused, history: History) -> Iterator[str]:
    if event.key not in history.offered:
        yield f"{_name(event.key)} (key {event.key}) is not offered"


def _unread(event: ReceivedRequest, _: History) -> Iterator[str]:
    if event.unread:
        yield f"{event.unread} bytes after the last field of {_name(event.key)} v{event.version}"


def _first(event: ReceivedRequest, history: History) -> Iterator[str]:
    connection = history.connection(event)
    if event.key not in FIRST and connection.requests == 0 and not connection.negotiated:
        yield f"the first request of the connection is {_name(event.key)}"


def _software(event: ReceivedRequest, _: History) -> Iterator[str]:
    if event.version >= 3:
        for name in (event.request.client_software_name, event.request.client_software_version):
            if not SOFTWARE.fullmatch(name):
                yield f"{name!r} does not match {SOFTWARE.pattern}"


def _before_login(event: ReceivedRequest, _: History) -> Iterator[str]:
    if event.must_authenticate and event.key not in LOGIN:
        yield f"{_name(event.key)} before the login is complete"


def _login_order(event: ReceivedRequest, history: History) -> Iterator[str]:
    if not history.connection(event).handshake:
        yield "no SaslHandshake that was accepted precedes it"


def _correlation(event: ReceivedRequest, history: History) -> Iterator[str]:
    if history.connection(event).last_correlation_id == event.correlation_id:
        yield f"two consecutive requests have the correlation id {event.correlation_id}"


def _client_id(event: ReceivedRequest, history: History) -> Iterator[str]:
    before = history.connection(event).client_id
    if before is not None and before != event.client_id:
        yield f"the client id changes from {before!r} to {event.client_id!r}"


def _name(key: int) -> str:
    return registry.API_KEYS.get(key, "unknown API")


RULES = (
    ClientRule(
        id="request-undecodable",
        sentence="A request has the fields of its version, and every length is within the request.",
        source="message definitions; RequestContext.parseRequest closes the connection",
        check=_undecodable,
        on=FrameRefused,
    ),
    ClientRule(
        id="version-not-offered",
        sentence="A client sends only versions that ApiVersions offers.",
        source="KIP-35",
        check=_not_offered,
        on=FrameRefused,
    ),
    ClientRule(
        id="api-not-offered",
        sentence="A client sends only requests that ApiVersions offers.",
        source="KIP-35",
        check=_api_not_offered,
        on=FrameRefused,
    ),
    ClientRule(
        id="unread-bytes",
        sentence="A request ends with its last field.",
        source="message definitions",
        check=_unread,
    ),
    ClientRule(
        id="api-versions-missing",
        sentence="A client requests the versions of each connection before it sends other requests.",
        source="KIP-35",
        check=_first,
        severity="advice",
    ),
    ClientRule(
        id="software-name-invalid",
        sentence="Name and version of the client software are letters, digits, '-' and '.'.",
        source="KIP-511; ApiVersionsRequest.isValid",
        check=_software,
        keys=frozenset({ApiKey.API_VERSIONS}),
    ),
    ClientRule(
        id="request-before-login",
        sentence="A client completes SASL before it sends other requests.",
        source="KIP-43; SaslServerAuthenticator",
        check=_before_login,
    ),
    ClientRule(
        id="login-without-handshake",
        sentence="SaslAuthenticate follows a SaslHandshake that was accepted.",
        source="KIP-152; SaslServerAuthenticator",
        check=_login_order,
        keys=frozenset({ApiKey.SASL_AUTHENTICATE}),
    ),
    ClientRule(
        id="correlation-id-repeated",
        sentence="Each request of a connection has a correlation id that the one before does not have.",
        source="RequestHeader.json; NetworkClient.nextCorrelationId",
        check=_correlation,
        severity="advice",
    ),
    ClientRule(
        id="client-id-changed",
        sentence="All requests of a connection have the same client id.",
        source="ClientQuotaManager: quotas and metrics are by client id",
        check=_client_id,
        severity="advice",
    ),
)
