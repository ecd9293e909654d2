"""Client of the proxy's own for requests that any broker can serve.

`ClusterClient` keeps one connection. When it is lost, all bootstrap servers and the brokers in the last Metadata
response are dialled concurrently (`racing`), and the first that is ready is kept. Without a response after SILENT_S a
request is sent to other brokers too (brokers/README.md rule 5). Any request may therefore be sent twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, TypeVar

import trio

from kafka_share_proxy.brokers.cluster_connection import (
    AuthenticationFailed,
    BrokerVersions,
    ClusterClientSettings,
    ClusterConnection,
    InFlight,
    connection,
    open_connection,
)
from kafka_share_proxy.brokers.queries import about_topics
from kafka_share_proxy.brokers.replaced import SILENT_S
from kafka_share_proxy.loop.first_success import race
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.messages import Message, RequestMessage
from kafka_share_proxy.wire.errors import ProxyError, RemoteProtocolError, UpstreamLost
from kafka_share_proxy.wire.values import Address

R = TypeVar("R", bound=Message)
T = TypeVar("T")

_TROUBLE: tuple[type[ProxyError], ...] = (UpstreamLost, RemoteProtocolError, AuthenticationFailed)


class AuthenticationNeeded(UpstreamLost):
    """The broker closed the connection at the first request: it requires an identity, and the proxy has none."""


class ClusterClient:
    """Requests to any broker. Not for concurrent tasks."""

    def __init__(
        self, bootstrap: Sequence[Address], settings: ClusterClientSettings, nodes: Mapping[int, Address] | None = None
    ) -> None:
        """`bootstrap` is read whenever servers are dialled. `nodes`: addresses that override the advertised ones."""
        self.settings = settings
        self._nodes = nodes or {}
        self._bootstrap = bootstrap
        self._brokers: tuple[Address, ...] = ()
        self._open: ClusterConnection | None = None

    async def metadata(self, topics: Sequence[str] = ()) -> tuple[messages.MetadataResponse, BrokerVersions]:
        """Return the response about all brokers and these topics, and the versions of its sender.

        Raises:
            UpstreamLost: no server responds. Has the reason of each.
            AuthenticationNeeded: an UpstreamLost; brokers respond but require an identity.
            AuthenticationFailed: brokers refuse the identity.
        """
        response, versions = await self.send_request(ApiKey.METADATA, about_topics(topics))
        self._brokers = tuple(Address(broker.host, broker.port) for broker in response.brokers or ())
        return response, versions

    async def send_request(self, key: int, query: RequestMessage[R]) -> tuple[R, BrokerVersions]:
        """Return the first response, and the versions of its sender. Raises as `metadata`."""
        reasons: list[ProxyError] = []
        candidates = list(dict.fromkeys([*self._bootstrap, *self._brokers]))
        opened = await self._connected(candidates, reasons)
        if opened is None:
            raise _summed_up(reasons)
        self._open = None  # kept again after it has responded
        early = await self._first_attempt(opened, key, query)
        if not isinstance(early, InFlight | ProxyError):
            self._open, opened.responded = opened, True
            return early, opened.versions
        first_attempt = partial(self._rest_of, opened, key, early)
        elsewhere = partial(self._elsewhere, opened, candidates, reasons, key, query)
        silent_at = -inf if isinstance(early, ProxyError) else early.sent + SILENT_S
        outcome = await race([first_attempt, elsewhere], _TROUBLE, _close, max(0.0, silent_at - trio.current_time()))
        if outcome.winner is None:
            raise _summed_up([*reasons, outcome.failures[0]])
        _, (self._open, response) = outcome.winner
        self._open.responded = True
        return response, self._open.versions

    async def any_versions(self) -> tuple[Address, BrokerVersions]:
        """Return the first server that reports its versions. Needs no identity.

        Raises UpstreamLost, with the reason of every server, if none does.
        """
        addresses = list(dict.fromkeys([*self._bootstrap, *self._brokers]))
        outcome = await race([partial(self.versions_of, address) for address in addresses], _TROUBLE, _nothing_to_close)
        if outcome.winner is None:
            raise _summed_up(list(outcome.failures.values()))
        index, versions = outcome.winner
        return addresses[index], versions

    async def versions_of(self, address: Address) -> BrokerVersions:
        """Return the versions of one broker, over a new connection without authentication."""
        async with connection(address, self.bare_settings()) as opened:
            return opened.versions

    def address_of(self, node_id: int, advertised: Address) -> Address:
        return self._nodes.get(node_id, advertised)

    def broker_addresses(self, metadata: messages.MetadataResponse) -> dict[int, Address]:
        """Return the addresses of the brokers in a Metadata response, by node id."""
        return {
            broker.node_id: self.address_of(broker.node_id, Address(broker.host, broker.port))
            for broker in metadata.brokers or ()
        }

    def bare_settings(self) -> ClusterClientSettings:
        return replace(self.settings, identity=None)

    async def aclose(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            await opened.aclose()

    async def _connected(self, candidates: list[Address], reasons: list[ProxyError]) -> ClusterConnection | None:
        """Return the kept connection, or one to the first server that is ready, or None.

        Servers that failed, and the one that is returned, are removed from `candidates`.
        """
        if self._open is not None and trio.current_time() < self._open.expires:
            return self._open
        await self.aclose()
        attempts = [partial(open_connection, address, self.settings) for address in candidates]
        outcome = await race(attempts, _TROUBLE, ClusterConnection.aclose)
        reasons += outcome.failures.values()
        over = set(outcome.failures)
        new_connection = None
        if outcome.winner is not None:
            index, new_connection = outcome.winner
            over.add(index)
        candidates[:] = [address for index, address in enumerate(candidates) if index not in over]
        return new_connection

    async def _response_of(
        self, opened: ClusterConnection, key: int, query: RequestMessage[R]
    ) -> tuple[ClusterConnection, R]:
        return opened, await self._closed_on_error(opened, partial(opened.send_request, key, query))

    async def _first_attempt(
        self, opened: ClusterConnection, key: int, query: RequestMessage[R]
    ) -> R | InFlight | ProxyError:
        """Send the request. Return its response if it is in time, as nearly all are: that needs no second task."""
        try:
            return await self._closed_on_error(opened, partial(opened.begin_request, key, query, SILENT_S))
        except _TROUBLE as error:
            return error

    async def _rest_of(
        self, opened: ClusterConnection, key: int, early: InFlight | ProxyError
    ) -> tuple[ClusterConnection, Any]:
        if isinstance(early, ProxyError):
            raise early
        finish = partial(opened.finish, key, opened.common_version(key), early)
        return opened, await self._closed_on_error(opened, finish)

    async def _closed_on_error(self, opened: ClusterConnection, request: Callable[[], Awaitable[T]]) -> T:
        try:
            return await request()
        except _TROUBLE as error:
            await opened.aclose()
            raise self._explained(error, opened) from None
        except BaseException:
            await opened.aclose()
            raise

    async def _elsewhere(
        self,
        first: ClusterConnection,
        candidates: list[Address],
        reasons: list[ProxyError],
        key: int,
        query: RequestMessage[R],
    ) -> tuple[ClusterConnection, R]:
        """Send the request to other servers, because the first one failed or is silent."""
        if not first.closed:
            return await self._one_by_one(first, candidates, reasons, key, query)
        while (opened := await self._connected(candidates, reasons)) is not None:
            try:
                return await self._response_of(opened, key, query)
            except _TROUBLE as error:
                reasons.append(error)
        raise _summed_up(reasons)

    async def _one_by_one(
        self,
        first: ClusterConnection,
        candidates: list[Address],
        reasons: list[ProxyError],
        key: int,
        query: RequestMessage[R],
    ) -> tuple[ClusterConnection, R]:
        """Give up all but the last after SILENT_S. The pending one is dialled again last."""
        candidates.sort(key=first.address.__eq__)
        while candidates:
            address = candidates.pop(0)
            try:
                with trio.fail_after(SILENT_S if candidates else inf):
                    return await self._response_of(await open_connection(address, self.settings), key, query)
            except trio.TooSlowError:
                reasons.append(UpstreamLost(f"{address} did not respond within {SILENT_S:g} s"))
            except _TROUBLE as error:
                reasons.append(error)
        raise _summed_up(reasons)

    def _explained(self, error: ProxyError, opened: ClusterConnection) -> ProxyError:
        """Return AuthenticationNeeded if the broker closed the connection at the first request."""
        if not isinstance(error, UpstreamLost) or opened.responded or self.settings.identity is not None:
            return error
        return AuthenticationNeeded(str(error))


async def _close(unwanted: tuple[ClusterConnection, Message]) -> None:
    await unwanted[0].aclose()


async def _nothing_to_close(_versions: BrokerVersions) -> None: ...


def _summed_up(reasons: Sequence[ProxyError]) -> ProxyError:
    """Return one error for all servers: the most specific kind, every text once."""
    text = "; ".join(dict.fromkeys(str(reason) for reason in reasons))
    for kind in (AuthenticationFailed, AuthenticationNeeded):
        if any(isinstance(reason, kind) for reason in reasons):
            return kind(text)
    return UpstreamLost(text or "there is no server to query")
