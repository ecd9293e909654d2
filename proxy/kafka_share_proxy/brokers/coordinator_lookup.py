"""Coordinator of a group, looked up under the proxy's own identity."""

from __future__ import annotations

import trio

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.queries import CoordinatorOf, about_coordinators
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, error_name
from kafka_share_proxy.wire.values import Address

TRIES, PAUSE_S = 20, 0.3
"""Number of attempts, and delay in seconds: the first lookup makes the brokers create the offsets topic."""


class CoordinatorRefused(ProxyError):
    """The brokers refuse to report a group's coordinator. The text has the reason."""


async def coordinator_of(client: ClusterClient, group: str) -> Address:
    """Raises CoordinatorRefused, UpstreamLost, AuthenticationFailed."""
    request = about_coordinators(CoordinatorOf.GROUP, [group])
    for _ in range(TRIES):
        response, _ = await client.send_request(ApiKey.FIND_COORDINATOR, request)
        (entry,) = response.coordinators
        if entry.error_code not in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            break
        await trio.sleep(PAUSE_S)
    if entry.error_code != ErrorCode.NONE:
        raise CoordinatorRefused(f"cannot find the coordinator of group {group}: {error_name(entry.error_code)}")
    return client.address_of(entry.node_id, Address(entry.host, entry.port))
