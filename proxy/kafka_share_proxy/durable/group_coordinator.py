"""Coordinator of the group of proxies: its lookup, and connections to it (durable/README.md rule 23)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from math import inf
from typing import TypeVar

import trio

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterConnection
from kafka_share_proxy.brokers.idle_connections import IdleConnections
from kafka_share_proxy.brokers.queries import COORDINATOR_ELSEWHERE
from kafka_share_proxy.brokers.replaced import ResponseDue, unless_replaced
from kafka_share_proxy.durable.member_errors import NotReadyYet
from kafka_share_proxy.durable.ownership_rules import GROUP
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost, error_name
from kafka_share_proxy.wire.values import Address

GROUP_KEY = 0
RETRY_SOON_S = 0.05
"""Delay in seconds between two lookups while the coordinator does not respond."""
DIAL_AGAIN_S = 0.2
"""Delay in seconds before an unreachable coordinator is dialled again."""
IDLE_S = 5.0
"""Seconds for which a second connection is kept: a change of members needs it several times."""

T = TypeVar("T")


class GroupCoordinator:
    """Broker that coordinates the group. Call `find` before anything else."""

    def __init__(self, client: ClusterClient) -> None:
        """`client` looks up the coordinator, and is closed by `aclose`."""
        self._client = client
        self._connections = IdleConnections(client.settings, IDLE_S)
        self._address = Address("", 0)
        """Coordinator in the brokers' last response to `find`."""
        self._dial_at = -inf
        """Earliest trio.current_time() of the next dial."""
        self._dial_error = ""

    async def find(self) -> bool:
        """Look it up. Return True if it is another broker than before.

        Raises:
            NotReadyYet: there is none at present. UpstreamLost, AuthenticationFailed.
        """
        address = await self._lookup()
        if address == self._address:
            return False
        self._address, self._dial_at = address, -inf
        return True

    async def dial(self, stack: AsyncExitStack) -> ClusterConnection:
        """Return a connection that no other task uses, until the stack is closed.

        Raises:
            UpstreamLost: it is unreachable, or was within DIAL_AGAIN_S. AuthenticationFailed.
        """
        if trio.current_time() < self._dial_at:
            raise UpstreamLost(self._dial_error)
        try:
            return await stack.enter_async_context(self.lend())
        except UpstreamLost as error:
            self._dial_at, self._dial_error = trio.current_time() + DIAL_AGAIN_S, str(error)
            raise

    def lend(self) -> AbstractAsyncContextManager[ClusterConnection]:
        return self._connections.lend(self._address)

    async def unless_moved(self, wait: Callable[[], Awaitable[T]], due: ResponseDue | None = None) -> T:
        """Return the result of `wait`, unless the brokers name another coordinator first. `due`: see replaced."""
        return await unless_replaced(wait, self._has_moved, due=due, check_s=RETRY_SOON_S)

    async def aclose(self) -> None:
        """Close the idle connections, and the client."""
        await self._connections.aclose()
        await self._client.aclose()

    async def _has_moved(self) -> bool:
        return await self._lookup() != self._address

    async def _lookup(self) -> Address:
        request = messages.FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[GROUP])
        response, _ = await self._client.send_request(ApiKey.FIND_COORDINATOR, request)
        (entry,) = response.coordinators
        if entry.error_code != ErrorCode.NONE:
            kind = NotReadyYet if entry.error_code in COORDINATOR_ELSEWHERE else UpstreamLost
            raise kind(f"the coordinator of group {GROUP}: {error_name(entry.error_code)}")
        return self._client.address_of(entry.node_id, Address(entry.host, entry.port))
