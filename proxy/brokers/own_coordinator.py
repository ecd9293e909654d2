"""Where a group is coordinated, asked under the proxy's own identity."""

from __future__ import annotations

import trio

from proxy.brokers.own_client import OwnClient
from proxy.brokers.questions import CoordinatorOf, about_coordinators
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode, ProxyError, error_name
from proxy.wire.values import Address

TRIES, PAUSE_S = 20, 0.3
"""The first question about a group makes the brokers create the topic of offsets."""


class CoordinatorRefused(ProxyError):
    """The brokers do not answer about a group; the text says why."""


async def coordinator_of(client: OwnClient, group: str) -> Address:
    """Where its coordinator is dialled. Raises CoordinatorRefused, UpstreamLost, AuthenticationFailed."""
    request = about_coordinators(CoordinatorOf.GROUP, [group])
    for _ in range(TRIES):
        answer, _ = await client.ask(ApiKey.FIND_COORDINATOR, request)
        (found,) = answer.coordinators
        if found.error_code not in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            break
        await trio.sleep(PAUSE_S)
    if found.error_code != ErrorCode.NONE:
        raise CoordinatorRefused(f"cannot find the coordinator of group {group}: {error_name(found.error_code)}")
    return client.address_of(found.node_id, Address(found.host, found.port))
