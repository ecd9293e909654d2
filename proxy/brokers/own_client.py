"""Questions of the proxy's own to whichever broker answers: who the brokers are and what they can do.

Theory of operation. `OwnClient` keeps one connection. When it is lost, all bootstrap servers and the brokers known from
the last Metadata answer are tried, one beside the other (`racing`), and the first that is ready is kept; one that fails
is not tried again for the same question.

A broker that is lost without a word, with its machine or its network, ends no connection. So a question that is not
answered within SILENT_S is asked of another one as well, over one connection more at a time; the first answer is
taken, and the connection that gave it is kept. Whatever is asked here may therefore be asked twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import TypeVar

import trio

from proxy.brokers.own_connection import (
    AuthenticationFailed,
    BrokerVersions,
    OwnConnection,
    OwnSettings,
    connection,
    open_connection,
)
from proxy.brokers.questions import about_topics
from proxy.brokers.replaced import SILENT_S
from proxy.loop.first_success import race
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ProxyError, RemoteProtocolError, UpstreamLost
from proxy.wire.messages import Message, RequestMessage
from proxy.wire.values import Address

R = TypeVar("R", bound=Message)
"""The class of the answer."""

_TROUBLE: tuple[type[ProxyError], ...] = (UpstreamLost, RemoteProtocolError, AuthenticationFailed)


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

    async def metadata(self, topics: Sequence[str] = ()) -> tuple[messages.MetadataResponse, BrokerVersions]:
        """The decoded MetadataResponse about all brokers and these topics, and the versions of who answered it.

        UpstreamLost with the reason of every server when none answers; AuthenticationNeeded (an UpstreamLost) when
        brokers are there but want an identity; AuthenticationFailed when they refuse the one given.
        """
        answer, versions = await self.ask(ApiKey.METADATA, about_topics(topics))
        self._brokers = tuple(Address(broker.host, broker.port) for broker in answer.brokers or ())
        return answer, versions

    async def ask(self, key: int, question: RequestMessage[R]) -> tuple[R, BrokerVersions]:
        """The answer of the first server that gives one, and its versions; errors as for `metadata`."""
        reasons: list[ProxyError] = []
        left = list(dict.fromkeys([*self._bootstrap, *self._brokers]))
        opened = await self._connected(left, reasons)
        if opened is None:
            raise _summed_up(reasons)
        self._open = None  # it is kept again once it has answered
        asking = partial(self._answer_of, opened, key, question)
        elsewhere = partial(self._elsewhere, opened, left, reasons, key, question)
        found = await race([asking, elsewhere], _TROUBLE, _close, SILENT_S)
        if found.winner is None:
            raise _summed_up([*reasons, found.failures[0]])
        _, (self._open, answer) = found.winner
        self._open.answered = True
        return answer, self._open.versions

    async def any_versions(self) -> tuple[Address, BrokerVersions]:
        """The versions of the first server that tells them, for which no identity is needed.

        UpstreamLost with the reason of every server when none does.
        """
        addresses = list(dict.fromkeys([*self._bootstrap, *self._brokers]))
        found = await race([partial(self.versions_of, address) for address in addresses], _TROUBLE, _nothing_to_close)
        if found.winner is None:
            raise _summed_up(list(found.failures.values()))
        index, versions = found.winner
        return addresses[index], versions

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

    async def _connected(self, left: list[Address], reasons: list[ProxyError]) -> OwnConnection | None:
        """The connection kept, or one to the first of these servers that is ready; None when there is none.

        Servers that failed (their reasons are added), and the one that is taken, are struck off.
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

    async def _answer_of(self, opened: OwnConnection, key: int, question: RequestMessage[R]) -> tuple[OwnConnection, R]:
        """Ask over this connection, which is closed unless it answers."""
        try:
            return opened, await opened.ask(key, question)
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
        question: RequestMessage[R],
    ) -> tuple[OwnConnection, R]:
        """Ask these servers, because the first one failed or while it is waited for; reasons are added."""
        if not first.closed:
            return await self._one_by_one(first, left, reasons, key, question)
        while (opened := await self._connected(left, reasons)) is not None:
            try:
                return await self._answer_of(opened, key, question)
            except _TROUBLE as error:
                reasons.append(error)
        raise _summed_up(reasons)

    async def _one_by_one(
        self,
        first: OwnConnection,
        left: list[Address],
        reasons: list[ProxyError],
        key: int,
        question: RequestMessage[R],
    ) -> tuple[OwnConnection, R]:
        """Each but the last is given up when it is silent as well; whom we wait for is dialled anew last."""
        left.sort(key=first.address.__eq__)
        while left:
            address = left.pop(0)
            try:
                with trio.fail_after(SILENT_S if left else inf):
                    return await self._answer_of(await open_connection(address, self.settings), key, question)
            except trio.TooSlowError:
                reasons.append(UpstreamLost(f"{address} did not answer within {SILENT_S:g} s"))
            except _TROUBLE as error:
                reasons.append(error)
        raise _summed_up(reasons)

    def _explained(self, error: ProxyError, opened: OwnConnection) -> ProxyError:
        """A broker that wants authentication closes the connection at the first other request, without a word."""
        if not isinstance(error, UpstreamLost) or opened.answered or self.settings.identity is not None:
            return error
        return AuthenticationNeeded(str(error))


async def _close(unwanted: tuple[OwnConnection, Message]) -> None:
    """An answer more, and whom it came from."""
    await unwanted[0].aclose()


async def _nothing_to_close(_versions: BrokerVersions) -> None:
    """What was asked is known, and its connection is closed."""


def _summed_up(reasons: Sequence[ProxyError]) -> ProxyError:
    """One error for all servers: the most telling kind, every text once."""
    text = "; ".join(dict.fromkeys(str(reason) for reason in reasons))
    for kind in (AuthenticationFailed, AuthenticationNeeded):
        if any(isinstance(reason, kind) for reason in reasons):
            return kind(text)
    return UpstreamLost(text or "there is no server to ask")
