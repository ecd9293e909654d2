"""Each rule for bytes, headers, versions and authentication: a client that violates it, and one that does not."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.judge.rules_of_connections import RULES
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey

from tests.support.judged import JudgedClient, Steps, found_after, versions_request

METADATA = messages.MetadataRequest(topics=[])
HANDSHAKE = messages.SaslHandshakeRequest(mechanism="PLAIN")
TOKEN = messages.SaslAuthenticateRequest(auth_bytes=b"\0u\0p")


def login(client: JudgedClient) -> None:
    client.send(versions_request(), must_authenticate=True)
    client.send(HANDSHAKE, must_authenticate=True)
    client.send(TOKEN, must_authenticate=True)
    client.send(METADATA)


def repeat_versions(client: JudgedClient) -> None:
    """KIP-511: version 35 is refused, and ApiVersions repeated in version 0."""
    client.refuse(ApiKey.API_VERSIONS, 35, "the version is not offered")
    client.send(messages.ApiVersionsRequest(), version=0)
    client.send(METADATA)


def without_versions(client: JudgedClient) -> None:
    client.send(METADATA, negotiates=False)


WRONG: dict[str, Steps] = {
    "request-undecodable": lambda client: client.refuse(ApiKey.METADATA, 12),
    "version-not-offered": lambda client: client.refuse(ApiKey.METADATA, 99),
    "api-not-offered": lambda client: client.refuse(999, 0),
    "unread-bytes": lambda client: client.send(METADATA, unread=3),
    "api-versions-missing": without_versions,
    "software-name-invalid": lambda client: client.send(versions_request("-client")),
    "request-before-login": lambda client: client.send(METADATA, must_authenticate=True),
    "login-without-handshake": lambda client: client.send(TOKEN, must_authenticate=True),
    "correlation-id-repeated": lambda client: [client.send(METADATA, correlation_id=77) for _ in range(2)],
    "client-id-changed": lambda client: [client.send(METADATA, client_id=name) for name in ("c", "d")],
}


RIGHT: dict[str, Steps] = {
    "request-undecodable": lambda client: client.send(METADATA),
    "version-not-offered": repeat_versions,
    "api-not-offered": repeat_versions,
    "unread-bytes": lambda client: client.send(METADATA),
    "api-versions-missing": login,
    "software-name-invalid": lambda client: client.send(versions_request("apache-kafka-java", "4.3.0")),
    "request-before-login": login,
    "login-without-handshake": login,
    "correlation-id-repeated": lambda client: [client.send(METADATA) for _ in range(2)],
    "client-id-changed": lambda client: [client.send(METADATA) for _ in range(2)],
}


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_a_violation_is_found(rule: str) -> None:
    assert found_after(WRONG[rule]) == {rule}


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_a_correct_client_has_no_finding(rule: str) -> None:
    assert found_after(RIGHT[rule]) == set()
