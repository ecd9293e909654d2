"""Assembly and run of the proxy: settings -> machines -> data plane -> until a signal.

Order: the ports are tried, and the admin listener opens, so that probes see why the proxy is not ready. Then the
cluster is queried. Its responses decide, once, what each feature serves. Only then are clients admitted. At the
end, new clients are refused, requests in flight may finish until the deadline, and then everything else is closed.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from kafka_share_proxy.app import build_info
from kafka_share_proxy.app.commands import check_listeners
from kafka_share_proxy.app.deferred_modules import CRC32C, deferred
from kafka_share_proxy.app.observing import admin_listener, connections_page, metrics, observe, reload_page, trace_page
from kafka_share_proxy.app.observing.admin_pages import AdminPages, Changes
from kafka_share_proxy.app.observing.confirmations import Confirmations
from kafka_share_proxy.app.observing.connections_page import ConnectionsPage
from kafka_share_proxy.app.observing.readiness import Readiness
from kafka_share_proxy.app.observing.status_page import StatusPage
from kafka_share_proxy.app.observing.trace_page import TracePage
from kafka_share_proxy.app.serving import features, garbage_collection, huge_pages, idle_code, open_files
from kafka_share_proxy.app.serving.composition import ServingParts, advertised, cluster_client_settings, compose
from kafka_share_proxy.app.serving.garbage_collection import FreezingCollector
from kafka_share_proxy.app.serving.reloading import Reloading
from kafka_share_proxy.app.settings import tls_contexts
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.workers import covering_page, giving_page, removing_page
from kafka_share_proxy.app.workers.seat import RETIRE, Seat
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_watch import ClusterWatch
from kafka_share_proxy.durable.state_home import StateHome
from kafka_share_proxy.feature.admin import Pages
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.feature.feature import Feature
from kafka_share_proxy.feature.metrics import Metrics
from kafka_share_proxy.forwarding.data_plane import Plane
from kafka_share_proxy.forwarding.drain_order import Spread
from kafka_share_proxy.forwarding.ports import Bind
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop.activated_sockets import activated_sockets
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.listeners import bind_local
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.loop.watchdog import Watchdog
from kafka_share_proxy.wire import kernels

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

T = TypeVar("T")
SPANS_FLUSH_S = 5.0
"""Maximum seconds that the export of the last spans may take at the end."""

LIBRARIES = ("crc32c", "cramjam", "lz4.frame", "zstandard")
"""Libraries loaded at startup, not at first use: loading blocks the loop for up to a tenth of a second, and there may
be no descriptor left to read them with.
"""
FIRST_USED = ("encodings.idna",)
"""Modules that Python loads when a name is first resolved."""
SCRAM = "scramp"
"""Library of the SCRAM mechanisms, 2.1 MiB with its imports. It is loaded only if the proxy logs in with SCRAM."""

HAND_OVER_SHARE, CLOSED_SHARE = 0.3, 0.8
"""Fractions of `drain_s` after which share groups are handed over, and after which all connections are closed."""
STILL_ACCEPTED_S = 0.5
"""Seconds after which no other retiring worker accepts clients either: a client that was closed twice waits for seconds
(librdkafka: reconnect.backoff.max.ms).
"""

SETTLED_S = 5.0
"""Seconds after the start until its memory is returned, if no client is connected then."""

ENDED, CUT_SHORT = 0, 1
"""Exit statuses: after an orderly end, and after a second signal."""


def run(
    config: Config,
    kinds: features.Kinds = features.FEATURES,
    read: Callable[[], Config] | None = None,
    seat: Seat | None = None,
    walked_s: float = 0.0,
) -> int:
    """Serve until SIGTERM or SIGINT. Return the exit status. `kinds`: the features to serve. `seat`: of a worker.

    `read` reads the settings again for a reload. Without it only certificates and authorities are read again.
    `walked_s`: what `prepare` returned.

    Raises:
        ConfigError: a setting is invalid in this environment. OSError: a port cannot be bound.
    """
    garbage_collection.share_one_arena()
    lines, level = observe.log_lines(config.log_format), observe.LEVELS[config.log_level]
    if seat is not None:
        lines = observe.with_fields(lines, worker=seat.number)
    notes = observe.LogNotes(lines, level, levels=features.event_levels(kinds))
    sys.unraisablehook = partial(_note_ignored, notes)
    config = _with_possible_connections(config, notes)
    reactor = Reactor(new_pump, notes)
    try:
        read_again = partial(_read_again, read or (lambda: config))
        return reactor.run(Server(config, reactor, notes, kinds, read_again, seat, walked_s).main)
    except BaseExceptionGroup as group:
        raise _only_error(group) from None
    finally:
        reactor.shut()
        sys.unraisablehook = sys.__unraisablehook__


def _note_ignored(notes: Notes, ignored: sys.UnraisableHookArgs) -> None:
    """Log, within the limits of repeated lines, an exception that Python could only print.

    Clients can cause one: `ssl` does so for a TLS server name that is not ASCII.
    """
    notes(observe.EXCEPTION_IGNORED, reason=ignored.err_msg or "in C code or a destructor", error=ignored.exc_value)


async def _load_in_thread(names: Iterable[str], loaded: trio.Event) -> None:
    await trio.to_thread.run_sync(load_libraries, names)
    loaded.set()


def prepare() -> float:
    """Do what a start with any settings needs. Return the seconds of a walk through all objects.

    A worker that replaces another does this before, because clients wait for it: 0.1 s of CPU.
    """
    load_libraries((*LIBRARIES, *FIRST_USED))
    observe.load()
    walked_s = garbage_collection.freeze()
    huge_pages.move()
    return walked_s


def load_libraries(names: Iterable[str]) -> None:
    """Load libraries that a proxy needs later."""
    with deferred(CRC32C):
        for name in names:
            import_module(name)


def needed_libraries(config: Config) -> tuple[str, ...]:
    mechanism = config.upstream.sasl.mechanism
    return (*LIBRARIES, SCRAM) if mechanism is not None and mechanism.startswith("SCRAM") else LIBRARIES


class Server:
    """One running proxy."""

    def __init__(
        self,
        config: Config,
        reactor: Reactor,
        notes: observe.LogNotes,
        kinds: features.Kinds,
        read_again: Callable[[], Config],
        seat: Seat | None = None,
        walked_s: float = 0.0,
    ) -> None:
        self._config = config
        self._walked_s = walked_s
        """0 if nothing was prepared."""
        self._seat = seat
        self._bind: Bind = activated_sockets().bind if seat is None else seat.supervisor.listen
        self._spreads_drain = False
        """True if connections are closed one after the other, because other workers have taken the ports."""
        self._has_handed_over = False
        """True after the time in which a retiring worker hands over its share groups, if it has any."""
        self._kinds = kinds
        self._reactor = reactor
        self._notes = notes
        self._metrics = Metrics()
        self._tls = tls_contexts.contexts(config)
        self._bootstrap = list(config.upstream.bootstrap)
        """Bootstrap servers, for everything that dials them. A reload changes the list."""
        self._reloading = Reloading(read_again, config, self._tls, self._apply, notes)
        self._pages = AdminPages(
            [path for kind in kinds for path in kind.admin_paths],
            self._changes(config),
            self._features,
            {
                reload_page.PATH: partial(reload_page.response, self._reloading.reload),
                reload_page.UPGRADE_PATH: reload_page.no_workers,
                connections_page.PATH: ConnectionsPage(self._plane).response,
                trace_page.PATH: TracePage(self._plane, lambda: self._config.trace, self._number).response,
                **({} if seat is None else self._pages_of_worker(seat)),
            },
        )
        self._collector = FreezingCollector(reactor.call_from_thread, self._is_idle)
        self._stop = trio.Event()
        self._parts: ServingParts | None = None
        """None until the cluster has responded."""
        self._watch = ClusterWatch(
            ClusterClient(self._bootstrap, cluster_client_settings(config, self._tls.brokers)),
            nodes=config.upstream.nodes,
            bootstrap=self._bootstrap,
            interval_s=config.upstream.metadata_interval_s,
            notes=notes,
            topics=self._topics,
        )
        self._tracing: TracerProvider | None = None
        """None if tracing is off."""
        self._tracer: Tracer | None = None
        """None if tracing is off."""
        if config.tracing.export != "none":
            self._export_spans()
        metrics.of_events(self._metrics, notes)
        metrics.of_iterations(self._metrics, reactor.iterations)
        metrics.of_garbage(self._metrics, self._collector)

    async def main(self) -> int:
        """Run all phases in order. Return the exit status."""
        config = self._config
        upstream = ",".join(map(str, config.upstream.bootstrap))
        self._notes(observe.STARTING, version=build_info.version(), upstream=upstream, listen=str(config.bound))
        for reason, names in build_info.fallbacks(kernels.chosen()).items():
            self._notes(observe.KERNELS_IN_PYTHON, kernels=", ".join(names), reason=reason)
        if self._seat is None:
            check_listeners.require(config, self._bind)
        with trio.CancelScope() as everything:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._receive_signals, everything)
                if self._seat is not None:
                    nursery.start_soon(self._follow_supervisor, self._seat)
                await self._open_admin(nursery)
                nursery.start_soon(self._reloading.watch)
                await self._serve(nursery)
                nursery.cancel_scope.cancel()
            self._collector.end()
            self._notes(observe.STOPPED)
            return ENDED
        self._notes(observe.STOPPED_AT_ONCE)
        return CUT_SHORT

    async def _serve(self, nursery: trio.Nursery) -> None:
        loaded = trio.Event()
        nursery.start_soon(_load_in_thread, needed_libraries(self._config), loaded)
        snapshot = await _unless_stopped(self._stop, self._watch.first)
        if snapshot is None:
            return  # stopped before the cluster responded
        self._parts = parts = compose(
            self._config,
            self._reactor,
            self._notice,
            nursery,
            snapshot,
            tls=self._tls,
            bootstrap=self._bootstrap,
            kinds=self._kinds,
            seat=self._seat,
            opening=self._bind,
            tracer=self._tracer,
        )
        metrics.of_parts(self._metrics, parts)
        trace = self._config.trace
        if trace.client is not None:
            parts.plane.client_trace.begin(trace.client, trace_page.limits(trace, trace.seconds))
        parts.open(snapshot)
        if parts.home is not None:
            nursery.start_soon(parts.home.run)  # brokers of a new cluster need a second for the group of proxies
        await loaded.wait()
        # Current objects are permanent: a garbage collection must not walk through all of them while clients wait.
        self._collector.begin(self._walked_s)
        if not self._walked_s:
            huge_pages.move()
        self._notes(observe.SERVING, listen=str(self._config.bound), brokers=len(parts.services.book.nodes))
        nursery.start_soon(self._watch.follow, parts.on_cluster)
        if parts.audit is not None:
            nursery.start_soon(parts.audit.run)
        for task in (task for feature in parts.features for task in feature.tasks):
            nursery.start_soon(task)
        nursery.start_soon(self._settle)
        await trio.lowlevel.checkpoint()  # no client was waiting during the loop iteration that did all this
        self._reactor.iterations.begin()
        if self._seat is not None:
            self._seat.supervisor.report_ready()
        with Watchdog(self._reactor.call_from_thread, self._blocked, self._continues):
            await self._stop.wait()
            await self._drain(parts)

    async def _settle(self) -> None:
        """Return memory that only the start needed."""
        await trio.sleep(SETTLED_S)
        if self._is_idle():
            self._collector.release_memory()
            idle_code.unmap()

    def _blocked(self, seconds: float, calls: str) -> None:
        """Log from the thread of the watchdog, past the limits of repeated lines, which belong to the loop."""
        event, level = observe.LOOP_BLOCKED, observe.EVENT_LEVELS[observe.LOOP_BLOCKED]
        self._notes.emit(level, event, {"seconds": seconds, "calls": calls})

    def _continues(self, seconds: float, calls: str) -> None:
        self._notes(observe.LOOP_CONTINUES, seconds=round(seconds, 3), calls=calls)

    def _notice(self, event: str, /, **context: Any) -> None:
        """Log an event. Trouble with a broker triggers an early query of the cluster."""
        self._notes(event, **context)
        if event == observe.BROKER_UNREACHABLE:
            self._watch.check_soon()

    async def _drain(self, parts: ServingParts) -> None:
        self._notes(observe.STOPPING, drain_s=self._config.drain_s)
        deadline = self._reactor.now() + self._config.drain_s
        spread = self._spread() if self._spreads_drain else None
        if parts.home is not None and (spread is not None or parts.home.has_successors):
            await self._hand_over(parts, parts.home)
        self._has_handed_over = True
        spread = spread if self._spreads_drain else None  # a second signal may have ended the spreading meanwhile
        if not await parts.plane.drained(deadline, spread):
            self._notes(observe.DRAIN_INCOMPLETE, reason="requests in flight were cut at the deadline")
        if parts.home is not None:
            await parts.home.retire()
        if parts.audit is not None:
            await parts.audit.finish()
        if self._tracing is not None:
            with trio.move_on_after(SPANS_FLUSH_S):
                await trio.to_thread.run_sync(self._tracing.shutdown, abandon_on_cancel=True)

    async def _hand_over(self, parts: ServingParts, home: StateHome) -> None:
        """Let other proxies own all share groups. From then on connections that drain move to other workers."""
        parts.plane.admission.close()
        with trio.move_on_after(HAND_OVER_SHARE * self._config.drain_s):
            await home.hand_over()
        if home.links is not None and self._spreads_drain:
            parts.plane.moves_away = partial(home.links.move_away, self._number)

    def _spread(self) -> Spread | None:
        """Return the times at which this worker closes connections, apart from those of other workers."""
        drain_s, workers = self._config.drain_s, self._config.worker_count
        delay_s = min(STILL_ACCEPTED_S, (1 - CLOSED_SHARE) * drain_s)
        share = self._number % workers / workers
        seconds = (CLOSED_SHARE - HAND_OVER_SHARE) * drain_s - delay_s
        return Spread(delay_s=delay_s, seconds=seconds, share=share) if drain_s else None

    def _export_spans(self) -> None:
        """Set up the export of spans."""
        from kafka_share_proxy.app.observing import spans  # an idle proxy without tracing should be small

        def note(reason: str) -> None:
            """Called by the thread of OpenTelemetry."""
            self._reactor.call_from_thread(partial(self._notes, observe.SPANS_NOT_EXPORTED, reason=reason))

        spans.redirect(note)
        ratio = self._config.tracing.sample_ratio
        self._tracing = spans.provider(build_info.version(), advertised(self._config), ratio)
        self._tracer = self._tracing.get_tracer(spans.SERVICE)

    async def _receive_signals(self, everything: trio.CancelScope, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, RETIRE) as received:
            task_status.started()  # before any task that may take long: a signal would end the process
            async for number in received:
                if number == signal.SIGHUP:
                    await self._reloading.try_reload("SIGHUP")
                    continue
                if number == RETIRE:
                    self._spreads_drain = True
                elif self._spreads_drain:  # the proxy ends, or replaces workers again, while this worker retires
                    self._spreads_drain = False
                    if self._parts is not None and self._has_handed_over:
                        self._parts.plane.drain_now()
                elif self._stop.is_set():
                    everything.cancel()
                self._stop.set()

    async def _follow_supervisor(self, seat: Seat) -> None:
        """Stop when the supervisor has ended, which happens only if it was killed."""
        await seat.supervisor.ended()
        self._stop.set()

    def _changes(self, config: Config) -> Changes:
        """Return who may change something here. For a worker its supervisor has checked that."""
        return config.admin_changes if self._seat is None else "any"

    async def _open_admin(self, nursery: trio.Nursery) -> None:
        opened = await self._admin_listeners()
        if not opened:
            return
        readiness = Readiness(
            self._watch, lambda: self._parts, self._stop.is_set, [kind.probe_path for kind in self._kinds]
        )
        ready = readiness.probes()
        probes = admin_listener.Probes(
            alive=self._alive,
            ready=ready,
            status=StatusPage(lambda: self._parts, ready).steps,
            metrics=self._metrics.steps,
            lookups=self._metrics.lookups,
            pages=self._pages,
            confirmations=Confirmations(self._pages),
            hosts=admin_listener.names_of(self._config),
        )
        balancers = self._config.proxy_protocol.admin if self._seat is None else ()
        nursery.start_soon(admin_listener.serve_admin, opened, probes, self._notes, balancers)

    async def _admin_listeners(self) -> list[trio.SocketListener]:
        if self._seat is not None:
            return [trio.SocketListener(trio.socket.from_stdlib_socket(bind_local(self._seat.admin)))]
        if self._config.admin is None:
            return []
        return await admin_listener.open_admin(self._config.admin, self._notes)

    def _apply(self, config: Config, names: Sequence[str]) -> None:
        """Use settings that a reload changed."""
        self._config = config
        self._notes.level = observe.LEVELS[config.log_level]
        self._pages.changes = self._changes(config)
        self._bootstrap[:] = config.upstream.bootstrap
        self._watch.interval_s = config.upstream.metadata_interval_s
        if self._parts is not None:
            self._parts.listeners.apply_settings(config)
            limits = [name.removeprefix("limits.") for name in names if name.startswith("limits.")]
            self._parts.services.limits.take(config.named_limits, limits)

    @property
    def _number(self) -> int:
        """Number of this worker. 0 without workers."""
        return 0 if self._seat is None else self._seat.number

    def _plane(self) -> Plane | None:
        return None if self._parts is None else self._parts.plane

    def _home(self) -> StateHome | None:
        return None if self._parts is None else self._parts.home

    def _pages_of_worker(self, seat: Seat) -> dict[str, Pages]:
        return {
            covering_page.PATH: covering_page.CoveringPage(seat.supervisor, self._plane).response,
            giving_page.PATH: giving_page.GivingPage(seat, self._plane, self._home).response,
            removing_page.PATH: removing_page.RemovingPage(seat, self._home).response,
        }

    def _is_idle(self) -> bool:
        return self._parts is None or self._parts.plane.is_idle

    def _features(self) -> tuple[Feature, ...] | None:
        return None if self._parts is None else self._parts.features

    def _alive(self) -> Mapping[str, object]:
        return {"alive": True}

    def _topics(self) -> list[str]:
        """Return the topics whose leaders this proxy depends on."""
        if self._parts is None:  # these topics decide what is served
            return features.decisive_topics(self._kinds)
        return [topic.name for topic in self._parts.services.topology.topics()]


def _with_possible_connections(config: Config, notes: Notes) -> Config:
    """Raise the limit of open files. Return the settings with as many client connections as it allows.

    Raises:
        ConfigError: not even one connection fits.
    """
    connections = config.named_limits.connections
    capacity = open_files.raise_limit(connections)
    lacks = open_files.shortage(capacity, connections)
    if not lacks:
        return config
    if not capacity.connections:
        raise ConfigError(lacks)
    notes(observe.CONNECTIONS_LOWERED, connections=capacity.connections, reason=lacks)
    return config.with_connections(capacity.connections)


def _read_again(read: Callable[[], Config]) -> Config:
    """Read the settings in a thread, with as many client connections as at the start if the machine limits them."""
    return _with_possible_connections(read(), lambda *_, **__: None)


async def _unless_stopped(stop: trio.Event, wait: Callable[[], Awaitable[T]]) -> T | None:
    """Return the result of `wait`, or None if `stop` is set first."""
    result: T | None = None
    async with trio.open_nursery() as nursery:

        async def cancel_at_stop() -> None:
            await stop.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(cancel_at_stop)
        result = await wait()
        nursery.cancel_scope.cancel()
    return result


def _only_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the one error that a nursery wrapped, or the group if there are several."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
