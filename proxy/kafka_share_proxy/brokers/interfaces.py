"""Requests to brokers, as a client's principal or under the proxy's identity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from kafka_share_proxy.brokers.connection_slots import SlotValues
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.definitions.messages import Message, RequestMessage

R = TypeVar("R", bound=Message)


class Connection(Protocol):
    """Client connection, with the upstream connection that belongs to it alone."""

    @property
    def id(self) -> int:
        """Unique in this process."""

    @property
    def node_id(self) -> int:
        """Broker that was reached. UNKNOWN_NODE: none yet, or it advertises another address."""

    @property
    def is_bootstrap(self) -> bool: ...

    @property
    def client_host(self) -> str: ...

    @property
    def slot_values(self) -> SlotValues: ...

    def send_request(self, key: int, version: int, body: bytes) -> Promise[memoryview]:
        """Send a request of the proxy on the client's upstream connection, as its principal.

        `body` and the response are without header. Fails with UpstreamLost if the connection ends first,
        RemoteProtocolError if the response is larger than `limits.collected_bytes`. Cancelling the waiter does not
        cancel the request.
        """

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back once when this connection ends, after its handler (if any) was cancelled."""

    def not_on_close(self, callback: Callable[[], None]) -> None:
        """Withdraw a callback."""


class ClusterQueries(Protocol):
    """Requests under the proxy's own identity, to other brokers."""

    def send_request(self, node_id: int, key: int, request: RequestMessage[R]) -> Promise[R]:
        """Send a request. Fails with a ProxyError: unknown broker, unreachable broker, timeout, too many concurrent
        requests.
        """
