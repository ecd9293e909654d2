"""Client of the proxy's own for requests that any broker can serve: which brokers exist, and what they support.

How it works: `OwnClient` keeps one connection. When it is lost, all bootstrap servers and the brokers in the last
Metadata response are dialled concurrently (`dialling`), and the first that is ready is kept. A server that fails is not
tried again for the same request.

A broker that is lost with its machine or its network, without a TCP reset, ends no connection. Therefore a request
without a response after SILENT_S is sent to other brokers too, one more connection at a time. The first response wins,
and its connection is kept. Any request may therefore be sent twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import TypeVar

import trio

from kafka_share_proxy.brokers.own_connection import (
    AuthenticationFailed,
    BrokerVersions,
    OwnConnection,
    OwnSettings,
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
"""Class of the response."""

_TROUBLE: tuple[type[ProxyError], ...] = (UpstreamLost, RemoteProtocolError, AuthenticationFailed)


class AuthenticationNeeded(UpstreamLost):
    """The broker closed the connection at the first request: it requires an identity, and the proxy has none."""


class OwnClient:
    """Requests to any broker that responds. Not for concurrent tasks."""

    def __init__(
        self, bootstrap: Sequence[Address], settings: OwnSettings, nodes: Mapping[int, Address] | None = None
    ) -> None:
        """`nodes`: addresses of brokers that override the advertised ones."""
        self.settings = settings
        self._nodes = nodes or {}
        self._bootstrap = tuple(bootstrap)
        self._brokers: tuple[Address, ...] = ()
        self._open: OwnConnection | None = None

    async def metadata(self, topics: Sequence[str] = ()) -> tuple[messages.MetadataResponse, BrokerVersions]:
        """Return the MetadataResponse about all brokers and these topics, and the versions of the broker that sent it.

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
        left = list(dict.fromkeys([*self._bootstrap, *self._brokers]))
        opened = await self._connected(left, reasons)
        if opened is None:
            raise _summed_up(reasons)
        self._open = None  # kept again after it has responded
        asking = partial(self._response_of, opened, key, query)
        elsewhere = partial(self._elsewhere, opened, left, reasons, key, query)
        found = await race([asking, elsewhere], _TROUBLE, _close, SILENT_S)
        if found.winner is None:
            raise _summed_up([*reasons, found.failures[0]])
        _, (self._open, response) = found.winner
        self._open.responded = True
        return response, self._open.versions

    async def any_versions(self) -> tuple[Address, BrokerVersions]:
        """Return the first server that reports its versions, and these. Needs no identity.

        Raises UpstreamLost, with the reason of every server, if none does.
        """
        addresses = list(dict.fromkeys([*self._bootstrap, *self._brokers]))
        found = await race([partial(self.versions_of, address) for address in addresses], _TROUBLE, _nothing_to_close)
        if found.winner is None:
            raise _summed_up(list(found.failures.values()))
        index, versions = found.winner
        return addresses[index], versions

    async def versions_of(self, address: Address) -> BrokerVersions:
        """Return the versions of one broker, over a new connection without authentication."""
        async with connection(address, self.bare_settings()) as opened:
            return opened.versions

    def address_of(self, node_id: int, advertised: Address) -> Address:
        """Return the address at which to dial a broker."""
        return self._nodes.get(node_id, advertised)

    def bare_settings(self) -> OwnSettings:
        """Return the settings without the identity."""
        return replace(self.settings, identity=None)

    async def aclose(self) -> None:
        """Close the connection that is kept, if any."""
        opened, self._open = self._open, None
        if opened is not None:
            await opened.aclose()

    async def _connected(self, left: list[Address], reasons: list[ProxyError]) -> OwnConnection | None:
        """Return the kept connection, or one to the first of these servers that is ready. None if there is none.

        Servers that failed, with their reasons added to `reasons`, and the one that is returned are removed from
        `left`.
        """
        if self._open is not None and trio.current_time() < self._open.expires:
            return self._open
        await self.aclose()
        attempts = [partial(open_connection, address, self.settings) for address in left]
        found = await race(attempts, _TROUBLE, OwnConnection.aclose)
        reasons += found.failures.values()
        over = set(found.failures)
        taken = None
        if found.winner is not None:
            index, taken = found.winner
            over.add(index)
        left[:] = [address for index, address in enumerate(left) if index not in over]
        return taken

    async def _response_of(self, opened: OwnConnection, key: int, query: RequestMessage[R]) -> tuple[OwnConnection, R]:
        """Send a request over this connection, and close the connection if it fails."""
        try:
            return opened, await opened.send_request(key, query)
        except _TROUBLE as error:
            await opened.aclose()
            raise self._explained(error, opened) from None
        except BaseException:
            await opened.aclose()
            raise

    async def _elsewhere(
        self,
        first: OwnConnection,
        left: list[Address],
        reasons: list[ProxyError],
        key: int,
        query: RequestMessage[R],
    ) -> tuple[OwnConnection, R]:
        """Send the request to other servers, because the first one failed or is silent. Failures are added to
        `reasons`.
        """
        if not first.closed:
            return await self._one_by_one(first, left, reasons, key, query)
        while (opened := await self._connected(left, reasons)) is not None:
            try:
                return await self._response_of(opened, key, query)
            except _TROUBLE as error:
                reasons.append(error)
        raise _summed_up(reasons)

    async def _one_by_one(
        self,
        first: OwnConnection,
        left: list[Address],
        reasons: list[ProxyError],
        key: int,
        query: RequestMessage[R],
    ) -> tuple[OwnConnection, R]:
        """Try servers in order. All but the last are given up after SILENT_S. The pending one is dialled again last."""
        left.sort(key=first.address.__eq__)
        while left:
            address = left.pop(0)
            try:
                with trio.fail_after(SILENT_S if left else inf):
                    return await self._response_of(await open_connection(address, self.settings), key, query)
            except trio.TooSlowError:
                reasons.append(UpstreamLost(f"{address} did not answer within {SILENT_S:g} s"))
            except _TROUBLE as error:
                reasons.append(error)
        raise _summed_up(reasons)

    def _explained(self, error: ProxyError, opened: OwnConnection) -> ProxyError:
        """Return AuthenticationNeeded if the broker closed the connection at the first request without a response."""
        if not isinstance(error, UpstreamLost) or opened.responded or self.settings.identity is not None:
            return error
        return AuthenticationNeeded(str(error))


async def _close(unwanted: tuple[OwnConnection, Message]) -> None:
    """Close the connection of a surplus response."""
    await unwanted[0].aclose()


async def _nothing_to_close(_versions: BrokerVersions) -> None:
    """Do nothing, because the connection of a surplus response is closed already."""


def _summed_up(reasons: Sequence[ProxyError]) -> ProxyError:
    """Return one error for all servers: the most specific kind, every text once."""
    text = "; ".join(dict.fromkeys(str(reason) for reason in reasons))
    for kind in (AuthenticationFailed, AuthenticationNeeded):
        if any(isinstance(reason, kind) for reason in reasons):
            return kind(text)
    return UpstreamLost(text or "there is no server to ask")
