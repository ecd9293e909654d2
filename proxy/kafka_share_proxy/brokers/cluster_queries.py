"""Requests of handlers under the proxy's own identity (interfaces.ClusterQueries), each on a new connection.

Rare by design (brokers/README.md rule 8).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings, connection
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.definitions.messages import Message, RequestMessage
from kafka_share_proxy.wire.errors import ProxyError, UpstreamLost
from kafka_share_proxy.wire.values import Address

R = TypeVar("R", bound=Message)

QUERIES_MAX = 32
"""Maximum number of requests in flight."""
RESPONSE_S = 5.0
"""Seconds to connect and receive the response."""


class ClusterClientQueries:
    """Sender of requests in the background of one nursery."""

    def __init__(
        self, nursery: trio.Nursery, settings: ClusterClientSettings, address_of: Callable[[int], Address | None]
    ) -> None:
        self._nursery = nursery
        self._settings = settings
        self._address_of = address_of
        self.under_way = 0

    def send_request(self, node_id: int, key: int, request: RequestMessage[R]) -> Promise[R]:
        response: Promise[R] = Promise()
        address = self._address_of(node_id)
        if address is None:
            response.fail(UpstreamLost(f"no address is known for broker {node_id}"))
        elif self.under_way >= QUERIES_MAX:
            response.fail(UpstreamLost(f"{QUERIES_MAX} requests under the proxy's own identity are in flight"))
        else:
            self.under_way += 1
            self._nursery.start_soon(self._query, address, key, request, response, name="own request")
        return response

    async def _query(self, address: Address, key: int, request: RequestMessage[R], response: Promise[R]) -> None:
        try:
            with trio.fail_after(RESPONSE_S):
                async with connection(address, self._settings) as opened:
                    received = await opened.send_request(key, request)
        except ProxyError as error:
            response.fail(error)
        except trio.TooSlowError:
            response.fail(UpstreamLost(f"{address} did not respond within {RESPONSE_S:g} s"))
        else:
            response.set(received)
        finally:
            self.under_way -= 1
