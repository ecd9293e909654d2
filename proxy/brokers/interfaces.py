"""How brokers are asked: on a client's own connection as its principal, or under the proxy's identity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from proxy.brokers.connection_slots import SlotValues
from proxy.loop.promise import Promise
from proxy.wire.messages import Message, RequestMessage

R = TypeVar("R", bound=Message)
"""The class of the answer."""


class Connection(Protocol):
    """One client connection, with the upstream connection that belongs to it alone."""

    @property
    def id(self) -> int:
        """Unique in this process."""

    @property
    def node_id(self) -> int:
        """The broker that it leads to: behind the bootstrap listener the one that was reached, where it is known.

        UNKNOWN_NODE: that broker advertises another address than the one that was dialled, or nothing was dialled yet.
        """

    @property
    def is_bootstrap(self) -> bool:
        """Whether the client dialled the bootstrap listener, which stands for all brokers."""

    @property
    def client_host(self) -> str:
        """The client's address without port."""

    @property
    def slot_values(self) -> SlotValues:
        """What features remember of this connection; read and written by `connection_slots` only."""

    def ask(self, key: int, version: int, body: bytes) -> Promise[memoryview]:
        """Send a request of the proxy's own on the client's upstream connection, as its principal.

        `body` is encoded without header; the promise gives the response body without header. Requests are answered
        in order. Fails with UpstreamLost when the connection ends first, RemoteProtocolError when the answer is
        larger than `limits.collected_bytes`. Cancelling the waiter does not unsend: a late answer is dropped
        unless a callback is still registered on the promise.
        """

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back once when this client connection ends, after its handler (if any) was cancelled."""


class OwnQuestions(Protocol):
    """Requests under the proxy's own identity, to brokers that the asking client's connection does not lead to."""

    def ask(self, node_id: int, key: int, request: RequestMessage[R]) -> Promise[R]:
        """The decoded answer, in the highest version both sides know.

        Fails with a ProxyError: no such broker, not reached, no answer in time, too many questions at once.
        """


UpstreamVersions = Mapping[int, tuple[int, int]]
"""API key -> (lowest, highest) version, as a broker's ApiVersions answered."""
