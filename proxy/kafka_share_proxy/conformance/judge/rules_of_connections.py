"""Rules for bytes, headers, versions and authentication."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kafka_share_proxy.conformance.judge.events import FrameRefused, RequestSeen
from kafka_share_proxy.conformance.judge.history import History
from kafka_share_proxy.conformance.judge.rule import ClientRule
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey

FIRST = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE})
"""Requests that may precede ApiVersions: KIP-35 lets a client send SaslHandshake first."""
LOGIN = FIRST | {ApiKey.SASL_AUTHENTICATE}
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def _undecodable(seen: FrameRefused, history: History) -> Iterator[str]:
    lowest, highest = history.offered.get(seen.key, (0, -1))
    if lowest <= seen.version <= highest:
        yield f"{_name(seen.key)} v{seen.version}: {seen.reason}"


def _not_offered(seen: FrameRefused, history: History) -> Iterator[str]:
    lowest, highest = history.offered.get(seen.key, (0, -1))
    if seen.key in history.offered and seen.key != ApiKey.API_VERSIONS and not lowest <= seen.version <= highest:
        yield f"{_name(seen.key)} v{seen.version}, offered are {lowest} to {highest}"


def _api_not_offered(seen: FrameRefused, history: History) -> Iterator[str]:
    if seen.key not in history.offered:
        yield f"{_name(seen.key)} (key {seen.key}) is not offered"


def _unread(seen: RequestSeen, _: History) -> Iterator[str]:
    if seen.unread:
        yield f"{seen.unread} bytes after the last field of {_name(seen.key)} v{seen.version}"


def _first(seen: RequestSeen, history: History) -> Iterator[str]:
    connection = history.connection(seen)
    if seen.key not in FIRST and connection.requests == 0 and not connection.negotiated:
        yield f"the first request of the connection is {_name(seen.key)}"


def _software(seen: RequestSeen, _: History) -> Iterator[str]:
    if seen.version >= 3:
        for name in (seen.request.client_software_name, seen.request.client_software_version):
            if not SOFTWARE.fullmatch(name):
                yield f"{name!r} does not match {SOFTWARE.pattern}"


def _before_login(seen: RequestSeen, _: History) -> Iterator[str]:
    if seen.must_authenticate and seen.key not in LOGIN:
        yield f"{_name(seen.key)} before the login is complete"


def _login_order(seen: RequestSeen, history: History) -> Iterator[str]:
    if not history.connection(seen).handshake:
        yield "no SaslHandshake that was accepted precedes it"


def _correlation(seen: RequestSeen, history: History) -> Iterator[str]:
    if history.connection(seen).last_correlation_id == seen.correlation_id:
        yield f"two consecutive requests have the correlation id {seen.correlation_id}"


def _client_id(seen: RequestSeen, history: History) -> Iterator[str]:
    before = history.connection(seen).client_id
    if before is not None and before != seen.client_id:
        yield f"the client id changes from {before!r} to {seen.client_id!r}"


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
        on=RequestSeen,
    ),
    ClientRule(
        id="api-versions-missing",
        sentence="A client requests the versions of each connection before it sends other requests.",
        source="KIP-35",
        check=_first,
        on=RequestSeen,
        severity="advice",
    ),
    ClientRule(
        id="software-name-invalid",
        sentence="Name and version of the client software are letters, digits, '-' and '.'.",
        source="KIP-511; ApiVersionsRequest.isValid",
        check=_software,
        on=RequestSeen,
        keys=frozenset({ApiKey.API_VERSIONS}),
    ),
    ClientRule(
        id="request-before-login",
        sentence="A client completes SASL before it sends other requests.",
        source="KIP-43; SaslServerAuthenticator",
        check=_before_login,
        on=RequestSeen,
    ),
    ClientRule(
        id="login-without-handshake",
        sentence="SaslAuthenticate follows a SaslHandshake that was accepted.",
        source="KIP-152; SaslServerAuthenticator",
        check=_login_order,
        on=RequestSeen,
        keys=frozenset({ApiKey.SASL_AUTHENTICATE}),
    ),
    ClientRule(
        id="correlation-id-repeated",
        sentence="Each request of a connection has a correlation id that the one before does not have.",
        source="RequestHeader.json; NetworkClient.nextCorrelationId",
        check=_correlation,
        on=RequestSeen,
        severity="advice",
    ),
    ClientRule(
        id="client-id-changed",
        sentence="All requests of a connection have the same client id.",
        source="ClientQuotaManager: quotas and metrics are by client id",
        check=_client_id,
        on=RequestSeen,
        severity="advice",
    ),
)
