"""Puts the proxy together and runs it: settings -> machines -> data plane -> until a signal.

Order. The admin listener opens first (so that probes see why it is not ready), the bootstrap port is tried, the cluster
is asked; then it is decided once where share groups live, and only then clients are let in. At the end: no new clients,
requests in flight until the deadline, then everything else at once.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeVar

import trio

from proxy.app import admin_listener, huge_pages, metrics, observe, open_files, state_setup, tls_contexts
from proxy.app.admin_groups import GroupPages
from proxy.app.composition import ServingParts, compose, own_settings
from proxy.app.config import Config
from proxy.app.garbage_collection import Garbage
from proxy.app.readiness import Readiness
from proxy.app.state_setup import HostState
from proxy.brokers.cluster_watch import ClusterWatch
from proxy.brokers.own_client import OwnClient
from proxy.forwarding.pump import new_pump
from proxy.loop import listeners
from proxy.loop.reactor import Reactor
from proxy.sharegroups.services import ShareServices
from proxy.sharegroups.state_records import TOPIC
from proxy.wire.errors import ConfigError

T = TypeVar("T")

LIBRARIES = ("crc32c", "cramjam", "lz4.frame", "scramp", "zstandard")
"""What is otherwise loaded when it is first needed: that would take up to a tenth of a second of the loop, and there
may be no descriptor left to read it with."""

ENDED, CUT_SHORT = 0, 1
"""Exit statuses: after a signal everything was let go in order; a second signal came."""


def run(config: Config, states: Sequence[HostState] = state_setup.STATES) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. `states`: what may be kept in topics of the cluster.

    Raises:
        ConfigError: a setting that only shows now to be wrong. OSError: a port cannot be had.
    """
    notes = observe.LogNotes(observe.log_lines(config.log_format), observe.LEVELS[config.log_level])
    config = _with_room(config, notes)
    reactor = Reactor(new_pump, notes)
    try:
        return reactor.run(Server(config, reactor, notes, states).main)
    except BaseExceptionGroup as group:
        raise _innermost(group) from None
    finally:
        reactor.shut()


def _load_libraries() -> None:
    for name in LIBRARIES:
        import_module(name)


class Server:
    """One running proxy."""

    def __init__(
        self,
        config: Config,
        reactor: Reactor,
        notes: observe.LogNotes,
        states: Sequence[HostState] = state_setup.STATES,
    ) -> None:
        self._config = config
        self._states = states
        self._reactor = reactor
        self._notes = notes
        self._metrics = observe.Metrics()
        self._client_tls = tls_contexts.towards_clients(config.client_tls)
        self._upstream_tls = tls_contexts.towards_brokers(config.upstream.tls)
        self._garbage = Garbage(reactor.call_from_thread)
        self._stop = trio.Event()
        self._parts: ServingParts | None = None
        """What serves clients, once the cluster has answered."""
        self._watch = ClusterWatch(
            OwnClient(config.upstream.bootstrap, own_settings(config, self._upstream_tls)),
            nodes=config.upstream.nodes,
            bootstrap=config.upstream.bootstrap,
            interval_s=config.upstream.metadata_interval_s,
            notes=notes,
            topics=self._topics,
        )
        metrics.of_events(self._metrics, notes)
        metrics.of_turns(self._metrics, reactor.turns)

    async def main(self) -> int:
        """Everything, in order; the exit status."""
        config = self._config
        upstream = ",".join(map(str, config.upstream.bootstrap))
        self._notes(observe.STARTING, upstream=upstream, listen=str(config.bound))
        _try_port(config)
        with trio.CancelScope() as everything:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._receive_signals, everything)
                await self._open_admin(nursery)
                await self._serve(nursery)
                nursery.cancel_scope.cancel()
            self._garbage.end()
            self._notes(observe.STOPPED)
            return ENDED
        self._notes(observe.STOPPED_AT_ONCE)
        return CUT_SHORT

    async def _serve(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(trio.to_thread.run_sync, _load_libraries)
        sight = await _unless(self._stop, self._watch.first)
        if sight is None:
            return  # told to stop before the cluster answered
        self._parts = parts = compose(
            self._config,
            self._reactor,
            self._notice,
            nursery,
            sight,
            client_tls=self._client_tls,
            upstream_tls=self._upstream_tls,
            states=self._states,
        )
        metrics.of_parts(self._metrics, parts)
        parts.open(sight)
        # What is here now stays: a collection of garbage must not walk through all of it while clients wait.
        self._garbage.begin()
        huge_pages.move()
        self._notes(observe.SERVING, listen=str(self._config.bound), brokers=len(parts.services.book.nodes))
        nursery.start_soon(self._watch.follow, parts.seen)
        if parts.home is not None:
            nursery.start_soon(parts.home.run)
        if parts.audit is not None:
            nursery.start_soon(parts.audit.run)
        if parts.views is not None:
            nursery.start_soon(parts.views.run)
        if parts.commits is not None:
            nursery.start_soon(parts.commits.run)
        await trio.lowlevel.checkpoint()  # the turn that did all this kept nobody waiting who was served
        self._reactor.turns.begin()
        await self._stop.wait()
        await self._drain(parts)

    def _notice(self, event: str, /, **context: Any) -> None:
        """What the parts note; trouble with a broker is a reason to look at the cluster before its time."""
        self._notes(event, **context)
        if event == observe.BROKER_UNREACHABLE:
            self._watch.look_soon()

    async def _drain(self, parts: ServingParts) -> None:
        self._notes(observe.STOPPING, drain_s=self._config.drain_s)
        if not await parts.plane.drained(self._reactor.now() + self._config.drain_s):
            self._notes(observe.DRAIN_INCOMPLETE, reason="requests in flight were cut at the deadline")
        if parts.home is not None:
            await parts.home.retire()
        if parts.audit is not None:
            await parts.audit.finish()

    async def _receive_signals(self, everything: trio.CancelScope) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
            async for _ in received:
                if self._stop.is_set():
                    everything.cancel()
                self._stop.set()

    async def _open_admin(self, nursery: trio.Nursery) -> None:
        address = self._config.admin
        if address is None:
            return
        groups = GroupPages(self._services, self._config.admin_changes)
        readiness = Readiness(self._watch, lambda: self._parts, self._stop.is_set)
        probes = admin_listener.Probes(
            alive=self._alive,
            ready=readiness.probes(),
            metrics=self._metrics.steps,
            groups=groups,
            hosts=admin_listener.own_names(address.host, self._config.advertised_host, *self._config.admin_hosts),
        )
        try:
            opened = await admin_listener.open_admin(address)
        except OSError as error:
            raise OSError(error.errno, f"cannot listen on {address} (admin): {error.strerror or error}") from None
        nursery.start_soon(admin_listener.serve_admin, opened, probes, self._notes)
        self._notes(observe.ADMIN_LISTENING, address=str(address))

    def _services(self) -> ShareServices | None:
        return None if self._parts is None else self._parts.services

    def _alive(self) -> Mapping[str, object]:
        return {"alive": True}

    def _topics(self) -> list[str]:
        """Topics whose leaders somebody here depends on."""
        if self._parts is None:  # not yet known where share groups live: is there state of any that live here?
            return [TOPIC]
        return [topic.name for topic in self._parts.services.topology.topics()]


def _with_room(config: Config, notes: observe.LogNotes) -> Config:
    """The settings, with as many client connections as the limit of open files, raised first, has room for.

    Raises:
        ConfigError: there is no room for any.
    """
    wanted = config.named_limits.connections
    room = open_files.raise_limit(wanted)
    lacks = open_files.shortage(room, wanted)
    if not lacks:
        return config
    if not room.connections:
        raise ConfigError(lacks)
    notes(observe.CONNECTIONS_LOWERED, connections=room.connections, reason=lacks)
    return config.with_connections(room.connections)


def _try_port(config: Config) -> None:
    """A port that is taken is told at once, not when the cluster has answered."""
    for sock in listeners.bind(config.bound.host, config.bound.port):
        sock.close()


async def _unless(stop: trio.Event, wait: Callable[[], Awaitable[T]]) -> T | None:
    """What `wait` gives, or None when it is time to stop."""
    result: T | None = None
    async with trio.open_nursery() as nursery:

        async def cancel_at_stop() -> None:
            await stop.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(cancel_at_stop)
        result = await wait()
        nursery.cancel_scope.cancel()
    return result


def _innermost(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error that a nursery wrapped, or the group if there are several."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
