"""Questions of the proxy's own to whichever broker answers: who the brokers are and what they can do.

Theory of operation. `OwnClient` keeps one connection and takes the next server when it is lost: all bootstrap servers
and the brokers known from the last Metadata answer, each at most once per question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import trio

from proxy.errors import ProxyError, RemoteProtocolError, UpstreamLost
from proxy.runtime.own_connection import (
    AuthenticationFailed,
    BrokerVersions,
    OwnConnection,
    OwnSettings,
    connection,
    open_connection,
)
from proxy.values import Address
from proxy.wire import registry

METADATA = 3


class AuthenticationNeeded(UpstreamLost):
    """The broker ended the connection at the first question: it wants an identity, and the proxy has none."""


class OwnClient:
    """Questions to whichever broker answers. Not for several tasks at once."""

    def __init__(
        self, bootstrap: Sequence[Address], settings: OwnSettings, nodes: Mapping[int, Address] | None = None
    ) -> None:
        """`nodes`: brokers that are dialled there, whatever they advertise."""
        self.settings = settings
        self._nodes = nodes or {}
        self._bootstrap = tuple(bootstrap)
        self._brokers: tuple[Address, ...] = ()
        self._open: OwnConnection | None = None

    async def metadata(self, topics: Sequence[str] = ()) -> tuple[Any, BrokerVersions]:
        """The decoded MetadataResponse about all brokers and these topics, and the versions of who answered it.

        UpstreamLost with the reason of every server when none answers; AuthenticationNeeded (an UpstreamLost) when
        brokers are there but want an identity; AuthenticationFailed when they refuse the one given.
        """
        request = registry.message("MetadataRequest")
        wanted = [request.MetadataRequestTopic(name=name) for name in topics]
        question = request(topics=wanted, allow_auto_topic_creation=False)
        answer, versions = await self.ask(METADATA, question)
        self._brokers = tuple(Address(broker.host, broker.port) for broker in answer.brokers or ())
        return answer, versions

    async def ask(self, key: int, question: Any) -> tuple[Any, BrokerVersions]:
        """The answer of the first server that gives one, and its versions; errors as for `metadata`."""
        reasons: list[ProxyError] = []
        for address in self._candidates():
            try:
                opened = await self._connection_to(address)
                answer = await opened.ask(key, question)
            except (UpstreamLost, RemoteProtocolError, AuthenticationFailed) as error:
                reasons.append(self._explained(error))
                await self.aclose()
                continue
            opened.answered = True
            return answer, opened.versions
        raise _summed_up(reasons)

    async def any_versions(self) -> tuple[Address, BrokerVersions]:
        """The versions of the first server that tells them, for which no identity is needed.

        UpstreamLost with the reason of every server when none does.
        """
        reasons: list[ProxyError] = []
        for address in dict.fromkeys(self._candidates()):
            try:
                return address, await self.versions_of(address)
            except (UpstreamLost, RemoteProtocolError) as error:
                reasons.append(error)
        raise _summed_up(reasons)

    async def versions_of(self, address: Address) -> BrokerVersions:
        """What one broker can do; asked on a connection of its own, without authentication."""
        async with connection(address, self.bare_settings()) as opened:
            return opened.versions

    def address_of(self, node_id: int, advertised: Address) -> Address:
        """Where to dial a broker."""
        return self._nodes.get(node_id, advertised)

    def bare_settings(self) -> OwnSettings:
        """As `settings`, without the identity."""
        return replace(self.settings, identity=None)

    async def aclose(self) -> None:
        """Close the connection that is kept, if any."""
        opened, self._open = self._open, None
        if opened is not None:
            await opened.aclose()

    def _candidates(self) -> list[Address]:
        """Bootstrap servers and brokers named in the last answer, each once; first the connection kept."""
        kept = [] if self._open is None else [self._open.address]
        return [*kept, *dict.fromkeys([*self._bootstrap, *self._brokers])]

    async def _connection_to(self, address: Address) -> OwnConnection:
        opened = self._open
        if opened is not None and opened.address == address and trio.current_time() < opened.expires:
            return opened
        await self.aclose()
        self._open = await open_connection(address, self.settings)
        return self._open

    def _explained(self, error: ProxyError) -> ProxyError:
        """A broker that wants authentication closes the connection at the first other request, without a word."""
        opened = self._open
        if (
            not isinstance(error, UpstreamLost)
            or opened is None
            or opened.answered
            or self.settings.identity is not None
        ):
            return error
        return AuthenticationNeeded(str(error))


def _summed_up(reasons: Sequence[ProxyError]) -> ProxyError:
    """One error for all servers: the most telling kind, every text once."""
    text = "; ".join(dict.fromkeys(str(reason) for reason in reasons))
    for kind in (AuthenticationFailed, AuthenticationNeeded):
        if any(isinstance(reason, kind) for reason in reasons):
            return kind(text)
    return UpstreamLost(text or "there is no server to ask")
