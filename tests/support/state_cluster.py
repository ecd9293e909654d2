"""Brokers, loop and channels for tests of `durable/`, by Trio's clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Any

import pytest
import trio
from kafka_share_proxy.conformance.target import error_responses
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.request_serving import ServedConnection
from kafka_share_proxy.durable import state_home
from kafka_share_proxy.durable.state_host import BrokerAccess, StateHost
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.promise import Callback, CallbackOwner, on_behalf_of
from kafka_share_proxy.wire.codec import frames, headers
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import Address

from tests.support.target_brokers import WALL_MS, TargetBrokers

UNCOUNTED = frozenset({ApiKey.API_VERSIONS, ApiKey.METADATA})


class StateCluster(TargetBrokers):
    """Two brokers."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self.loses: int | None = None
        """API key of the request at which its reader loses the leader: nothing arrives from there any longer."""
        self.refuses_to_make: set[str] = set()
        self.denies_writing: set[str] = set()
        """Topics that the identity may not write to."""
        self.away_after: float = inf
        """Number of requests after which no broker responds."""
        self.held: dict[int, list[Callable[[], None]]] = {}
        """API key -> requests of channels that wait for `release`."""
        self._scopes: list[trio.CancelScope] = []
        self._create, self._produce = self.handlers[ApiKey.CREATE_TOPICS], self.handlers[ApiKey.PRODUCE]
        self.handlers[ApiKey.CREATE_TOPICS], self.handlers[ApiKey.PRODUCE] = self._created, self._produced

    async def _created(self, call: TargetCall[Any]) -> Any:
        is_denied = any(each.name in self.refuses_to_make for each in call.request.topics)
        return _denied(call) if is_denied else await self._create(call)

    async def _produced(self, call: TargetCall[Any]) -> Any:
        is_denied = any(each.name in self.denies_writing for each in call.request.topic_data)
        return _denied(call) if is_denied else await self._produce(call)

    async def _before(self, key: int, node_id: int, client_id: str) -> None:
        if key in UNCOUNTED:
            return
        if key == self.loses:
            self.loses = None
            self.lost.add(node_id)
        if len(self.requested) + 1 >= self.away_after:
            self.leave()
        await super()._before(key, node_id, client_id)

    def until_away(self) -> trio.CancelScope:
        """Return a scope that is cancelled while the brokers are away."""
        scope = trio.CancelScope()
        self._scopes.append(scope)
        if self.is_away:
            scope.cancel()
        return scope

    def leave(self, *nodes: int) -> None:
        super().leave(*nodes)
        for scope in self._scopes:
            scope.cancel()
        self._scopes.clear()

    def release(self, key: int) -> None:
        for go_on in self.held.pop(key):
            go_on()

    def access(self, notes: Callable[..., None]) -> BrokerAccess:
        return BrokerAccess(client=self.client, settings=self.settings, own=None, notes=notes)


def _denied(call: TargetCall[Any]) -> Any:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return error_responses.build(call.header.key, call.version, call.request, code)


class Loop:
    """The part of the reactor that a journal needs, by Trio's clock."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery

    def now(self) -> float:
        return trio.current_time()

    def wall_ms(self) -> int:
        return WALL_MS + round(trio.current_time() * 1000)

    def call_soon(self, _owner: object, callback: Callable[[], object]) -> None:
        self.call_at(trio.current_time(), callback)

    def call_on_behalf_of(self, owner: CallbackOwner, callback: Callback) -> None:
        self.call_at(trio.current_time(), partial(on_behalf_of, owner, callback))

    def call_at(self, deadline: float, callback: Callable[[], object]) -> trio.CancelScope:
        scope = trio.CancelScope()

        async def ring() -> None:
            with scope:
                await trio.sleep_until(deadline)
                callback()

        self._nursery.start_soon(ring)
        return scope


class Channels:
    """Replacement of `brokers.channels.BrokerChannels`: every channel is open; responses arrive in separate
    iterations.
    """

    def __init__(self, cluster: StateCluster, *_: Any, **_callbacks: Any) -> None:
        self.addresses: Mapping[int, Address] = {}
        self._cluster = cluster

    async def run(self) -> None:
        await trio.sleep_forever()

    def get(self, node_id: int, _purpose: str) -> Channel:
        return Channel(self._cluster, node_id)

    def is_late(self, _node_id: int, _purpose: str) -> bool:
        return False

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class Channel:
    """A channel to one node, without a socket."""

    closed = False

    def __init__(self, cluster: StateCluster, node_id: int) -> None:
        self._cluster = cluster
        self._requests = ServedConnection(cluster.served, cluster.peer(node_id))

    def highest(self, key: int, ours_max: int) -> int:
        return min(ours_max, self._cluster.target.offered[key][1])

    def send_request(self, key: int, version: int, request: Any, done: Callable[[Any | None], None]) -> None:
        frame = frames.request(key, version, 1, None, request)
        self.send_frame(frame, partial(frames.decode_response, key, version), done)

    def send_frame(
        self, frame: bytes, decode: Callable[[bytes], tuple[int, Any]], done: Callable[[Any | None], None]
    ) -> None:
        async def response() -> None:
            await trio.sleep(0.001)
            data = b""
            with self._cluster.until_away():
                data = (await self._requests.serve(frame[4:], trio.current_time())).data
            done(decode(data[4:])[1] if data else None)

        go_on = partial(self._cluster.nursery.start_soon, response)
        key = headers.peek(frame[4:])[0]
        if key in self._cluster.held:
            self._cluster.held[key].append(go_on)
        else:
            go_on()


def host_in(cluster: StateCluster, loop: Any, notes: Notes) -> StateHost:
    """Return the dependencies of a state that no home owns."""
    channels: Any = Channels(cluster)
    return StateHost(
        access=cluster.access(notes), reactor=loop, name="a:1", channels=channels, lease_s=0.0, on_lost=lambda _: None
    )


def install(monkeypatch: pytest.MonkeyPatch, cluster: StateCluster) -> None:
    """Have what hosts states use these channels."""
    monkeypatch.setattr(state_home, "BrokerChannels", partial(Channels, cluster))
