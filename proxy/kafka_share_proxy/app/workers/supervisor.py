"""Supervisor of several workers that serve clients on the same ports (app/README.md rules 10 to 16)."""

from __future__ import annotations

import json
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from itertools import islice
from typing import Any

import trio

from kafka_share_proxy.app.commands import check_listeners
from kafka_share_proxy.app.observing import admin_listener, metrics, observe, reload_page, trace_page
from kafka_share_proxy.app.settings import live_settings, passed_settings
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.settings.live_settings import Reloaded
from kafka_share_proxy.app.settings.tls_contexts import TlsContexts
from kafka_share_proxy.app.workers import covered_places, fork_server, removing_page, worker_client
from kafka_share_proxy.app.workers.channel import Body
from kafka_share_proxy.app.workers.covered_places import CoveredPlaces
from kafka_share_proxy.app.workers.fork_server import ForkServer
from kafka_share_proxy.app.workers.generation import Generation
from kafka_share_proxy.app.workers.listening_sockets import ListeningSockets
from kafka_share_proxy.app.workers.places import NUMBERS, Places, name_of
from kafka_share_proxy.app.workers.seat import RETIRE
from kafka_share_proxy.app.workers.supervisor_pages import SupervisorPages
from kafka_share_proxy.app.workers.supervisor_trace import SupervisorTrace
from kafka_share_proxy.app.workers.worker_process import Reply, Start, WorkerProcess, start_process
from kafka_share_proxy.durable.state_home import LINKED_FIELD, LOADING_FIELD
from kafka_share_proxy.feature.admin import Pages
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.feature.metrics import Metrics
from kafka_share_proxy.loop.activated_sockets import activated_sockets

ENDED, CUT_SHORT = 0, 1
"""Exit statuses: after an orderly end, and after a second signal."""
OWN = ("admin", "log_format")
"""Settings that the supervisor itself uses from its start on."""
_STOPPING = (signal.SIGTERM, signal.SIGINT)
READY_WAIT_S = 10.0
"""Seconds that a change waits for a worker that is being replaced."""
TAKEN_OVER_S = 20.0
"""Seconds that workers are given to load the state that they own before others replace them."""
LINKED_S = 3.0
"""Seconds that new workers are given to join the group of proxies before those before them hand over."""
REST_OF_DRAIN_S = 2.0
"""Seconds more that workers may move their connections before others replace the present ones too."""
STATE_CHECK_S = 0.1
SPREAD_EVERY_S = 2.0
"""Seconds between two looks at which workers serve new connections."""
STATE_PAGE = "/readyz"
REPLACE_S = 60.0
"""Seconds that the workers of a new generation may take until all accept clients."""

Apply = Callable[[Config, Sequence[str]], Awaitable[None]]
"""Function that applies settings, of which these names have changed. Raises ConfigError."""


def run(config: Config, read: Callable[[], Config]) -> int:
    """Serve with several workers until SIGTERM or SIGINT. Return the exit status. `read` reads all settings again.

    Raises:
        ConfigError: a setting is invalid in this environment. OSError: a port cannot be bound.
    """
    notes = observe.LogNotes(observe.log_lines(config.log_format), observe.LEVELS[config.log_level])
    places = Places()
    try:
        return trio.run(Supervisor(config, read, notes, places).main)
    finally:
        places.remove()


class Supervisor:
    """Workers of the current generation, and of the one before it while it ends."""

    def __init__(self, config: Config, read: Callable[[], Config], notes: observe.LogNotes, places: Places) -> None:
        self._config = config
        self._read = read
        self._notes = notes
        self._places = places
        self._activated = activated_sockets()
        self._sockets = ListeningSockets(self._activated.bind)
        self._running: dict[int, WorkerProcess] = {}
        """Workers by number."""
        self._current: Generation | None = None
        self._ending: Generation | None = None
        """Generation that is ending."""
        self._covered_places = CoveredPlaces()
        self._forks: ForkServer | None = None
        self._can_fork = False
        self._stop = trio.Event()
        self._status = ENDED
        self._one_at_a_time = trio.Lock()
        self._changes = {signal.SIGHUP: self.reload, signal.SIGUSR2: self.upgrade}
        self._trace = SupervisorTrace(self._running)
        changes = {reload_page.PATH: self.reload, reload_page.UPGRADE_PATH: self.upgrade}
        pages: dict[str, Pages] = {path: partial(reload_page.response, change) for path, change in changes.items()}
        pages[trace_page.PATH] = self._trace.response
        self._pages = SupervisorPages(self._running, config, pages, self._own_metrics())

    async def main(self) -> int:
        """Run until a signal. Return the exit status."""
        config = self._config
        upstream = ",".join(map(str, config.upstream.bootstrap))
        self._notes(observe.STARTING, upstream=upstream, listen=str(config.bound), workers=config.worker_count)
        try:
            check_listeners.require(config, self._activated.bind)
            with fork_server.adopted_orphans() as self._can_fork:
                async with trio.open_nursery() as nursery:
                    await self._run(nursery)
        finally:
            self._sockets.close()
        self._notes(observe.STOPPED)
        return self._status

    async def _run(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        nursery.start_soon(self._receive_signals)
        if self._config.admin is not None:
            opened = await admin_listener.open_admin(self._config.admin, self._notes)
            serve = partial(admin_listener.serve_admin, timeout_s=REPLACE_S + admin_listener.REQUEST_TIMEOUT_S)
            nursery.start_soon(serve, opened, self._pages, self._notes, self._config.proxy_protocol.admin)
        self._current = self._begin(self._config)
        await self._serve(self._current)
        await self._end_all()
        nursery.cancel_scope.cancel()

    def _own_metrics(self) -> Metrics:
        own = Metrics()
        metrics.of_events(own, self._notes)
        serving = "Workers that accept clients, or that have some while they end."
        own.add("workers", "gauge", serving, lambda: sum(each.serves for each in self._running.values()))
        return own

    async def _serve(self, first: Generation) -> None:
        if await first.serves(self._stop):
            self._notes(observe.SERVING, listen=str(self._config.bound), workers=len(first.places))
            await self._spread_connections()
        elif first.failed is not None:
            self._status = first.failed

    async def _spread_connections(self) -> None:
        """Let workers give each other the connections that others should serve, until the proxy stops."""
        while not self._stop.is_set():
            current = self._current
            if current is not None and current.is_ready and len(current.places) > 1 and self._ending is None:
                await covered_places.spread(current)
            with trio.move_on_after(SPREAD_EVERY_S):
                await self._stop.wait()

    async def _end_all(self) -> None:
        self._notes(observe.STOPPING, drain_s=self._config.drain_s)
        async with trio.open_nursery() as nursery:
            for generation in (self._ending, self._current):
                if generation is not None:
                    nursery.start_soon(generation.end, signal.SIGTERM)

    async def _receive_signals(self) -> None:
        with trio.open_signal_receiver(*_STOPPING, *self._changes) as received:
            async for number in received:
                if number in self._changes:
                    change = self._changes[signal.Signals(number)]
                    self._nursery.start_soon(self._change_or_log, change, signal.Signals(number).name)
                elif self._stop.is_set():
                    self._status = CUT_SHORT
                    self._end_immediately()
                else:
                    self._stop.set()

    def _end_immediately(self) -> None:
        for worker in self._running.values():
            worker.signal(signal.SIGTERM)  # its second one

    # Workers

    def _begin(self, config: Config) -> Generation:
        current_numbers = [*self._current.numbers] if self._current is not None else []
        free = (number for number in NUMBERS if number not in current_numbers)
        numbers = list(islice(free, config.worker_count))
        generation = Generation(config, numbers, self._new_worker, self._notes, self._cover)
        for place in generation.places:
            self._nursery.start_soon(generation.keep, place)
        return generation

    def _new_worker(self, generation: Generation, place: int) -> WorkerProcess:
        number = generation.numbers[place]
        worker = WorkerProcess(number, place, self._places.admin(number), self._start())
        is_successor = generation.was_ready or self._current not in (None, generation)
        worker.reply = partial(self._reply, generation, worker, is_successor)
        self._running[number] = worker
        self._nursery.start_soon(self._run_worker, worker)
        return worker

    def _start(self) -> Start:
        if not self._can_fork:
            return start_process
        if self._forks is None:
            self._forks = ForkServer()
            self._nursery.start_soon(self._run_forks, self._forks)
        return self._forks.start

    async def _run_worker(self, worker: WorkerProcess) -> None:
        try:
            await worker.run()
        finally:
            if self._running.get(worker.number) is worker:
                del self._running[worker.number]
                self._pages.ended(worker)
            if worker.status:
                self._nursery.start_soon(self._remove, worker)

    async def _remove(self, ended: WorkerProcess) -> None:
        """Let another worker remove one that was killed, or failed, from the group of proxies."""
        for other in list(self._running.values()):
            if other.serves:
                response = await worker_client.request(other.admin, "POST", f"/{removing_page.PATH}/{ended.number}")
                if response is not None and response.status == HTTPStatus.OK:
                    return

    async def _run_forks(self, server: ForkServer) -> None:
        """Run it. If it ends, the next worker needs another."""
        try:
            await server.run()
        finally:
            if self._forks is server:
                self._forks = None

    def _reply(self, generation: Generation, worker: WorkerProcess, is_successor: bool, request: Body) -> Reply:
        """Return the response to a request of a worker, see `seat.SupervisorLink`."""
        match request:
            case {"listen": [str() as host, int() as port, place]}:
                return self._listen(worker, host, port, worker.place if place is None else place)
            case {"settings": True}:
                return {"settings": passed_settings.encode(generation.config)}, []
            case {"seat": True}:
                return self._places.seat(generation.config, worker.number, is_successor=is_successor), []
            case {"ready": True}:
                worker.ready.set()
                self._cover(generation)
                self._nursery.start_soon(self._trace.join, worker)
        return {}, []

    def _cover(self, generation: Generation) -> None:
        """Let workers accept the clients of those that have ended, until these are replaced."""
        self._nursery.start_soon(self._covered_places.follow, generation)

    def _listen(self, worker: WorkerProcess, host: str, port: int, place: int) -> Reply:
        try:
            sockets = self._sockets.open(place, host, port)
        except OSError as error:
            return {"errno": error.errno, "error": error.strerror or str(error)}, []
        worker.listens_at.add((place, host, port))
        return {}, sockets

    # Changes

    async def _change_or_log(self, change: Callable[[str], Awaitable[Reloaded]], reason: str) -> None:
        """Reload or upgrade. A mistake is logged only."""
        with suppress(ConfigError):
            await change(reason)

    async def upgrade(self, reason: str) -> Reloaded:
        """Replace all workers by new ones, of the version that is installed now. See `reload`."""
        return await self._change(reason, self._upgrade)

    async def reload(self, reason: str) -> Reloaded:
        """Apply what is written now: live in all workers, or by new workers if a setting needs them.

        Raises:
            ConfigError: a setting or a file is invalid, or new workers do not start. Nothing was changed.
        """
        return await self._change(reason, self._apply)

    async def _change(self, reason: str, apply: Apply) -> Reloaded:
        # Shielded, because a client that does not wait must not leave new workers without use.
        async with self._one_at_a_time:
            reloaded = Reloaded()
            with trio.CancelScope(shield=True):
                reloaded = await live_settings.reload(
                    self._config,
                    self._read,
                    lambda name, _config: name not in OWN,
                    partial(self._applied, apply),
                    self._notes,
                    reason,
                )
            return reloaded  # noqa: RET504 - a scope that swallows its own cancellation may end without a value

    async def _applied(self, apply: Apply, config: Config, names: Sequence[str], _tls: TlsContexts) -> None:
        await apply(config, names)
        self._config = config
        self._notes.level = observe.LEVELS[config.log_level]
        self._pages.apply_settings(config)

    async def _ready_generation(self) -> Generation:
        """Return the current generation once a worker that ended is replaced. Raises ConfigError if that takes long."""
        current = self._current
        if current is not None:
            with trio.move_on_after(READY_WAIT_S):
                if await current.serves(self._stop):
                    return current
        raise ConfigError("some workers are still starting; try again soon")

    async def _upgrade(self, config: Config, _names: Sequence[str]) -> None:
        current, before = await self._ready_generation(), self._forks
        if before is not None:  # it has loaded the version of its start
            self._forks = None
            before.kill()
        await self._replace(current, config)

    async def _apply(self, config: Config, names: Sequence[str]) -> None:
        current = await self._ready_generation()
        if all(live_settings.is_live(name, self._config, config) for name in names):
            await self._apply_live(current, config)
        else:
            await self._replace(current, config)

    async def _apply_live(self, current: Generation, config: Config) -> None:
        before, current.config = current.config, config
        for worker in self._running.values():
            if worker.ready.is_set():
                response = await worker_client.request(worker.admin, "POST", f"/{reload_page.PATH}")
                if response is not None and response.status == HTTPStatus.UNPROCESSABLE_ENTITY:
                    current.config = before
                    raise ConfigError(f"worker {worker.number}: {json.loads(response.body)['reason']}")

    async def _replace(self, current: Generation, config: Config) -> None:
        """Start new workers, and retire those before them once the new ones accept clients."""
        await self._until(self._has_loaded, TAKEN_OVER_S)
        if (before := self._ending) is not None:  # at most two generations need memory
            with trio.move_on_after(REST_OF_DRAIN_S):
                await before.ended()
            before.signal(signal.SIGTERM)
            await before.ended()
        new = self._begin(config)
        with trio.move_on_after(REPLACE_S):
            if await new.serves(self._stop):
                await self._until(partial(self._are_linked, new), LINKED_S)
                self._current, self._ending = new, current
                self._nursery.start_soon(self._retire, current)
                self._notes(observe.WORKERS_REPLACED, workers=len(new.places))
                return
        await new.end(signal.SIGTERM)
        reason = f"a new worker ended with status {new.failed}" if new.failed else f"not ready within {REPLACE_S:g} s"
        self._notes(observe.WORKERS_NOT_REPLACED, reason=reason)
        raise ConfigError(f"{reason}; its log lines say why, and the workers before it continue")

    async def _until(self, condition: Callable[[], Awaitable[bool]], limit_s: float) -> None:
        with trio.move_on_after(limit_s):
            while not self._stop.is_set() and not await condition():  # noqa: ASYNC110 - workers are other processes
                await trio.sleep(STATE_CHECK_S)

    async def _has_loaded(self) -> bool:
        """Return True if workers serve what they own. Otherwise its clients would wait for two changes."""
        states = await self._states(self._running)
        return not any(LOADING_FIELD in state for state in states.values())

    async def _are_linked(self, new: Generation) -> bool:
        """Return True if the new workers know the groups of all others, which they then load first."""
        names = {name_of(new.config, number) for number in self._running}
        states = await self._states({n: self._running[n] for n in new.numbers if n in self._running})
        linked = {number: states.get(number, {}).get(LINKED_FIELD) for number in new.numbers}
        return all(each is None or names <= {name_of(new.config, number), *each} for number, each in linked.items())

    @staticmethod
    async def _states(workers: Mapping[int, WorkerProcess]) -> dict[int, dict[str, Any]]:
        responses = await worker_client.request_all(workers, "GET", STATE_PAGE)
        return {number: json.loads(response.body) for number, response in responses.items()}

    async def _retire(self, generation: Generation) -> None:
        await generation.end(RETIRE)
        if self._ending is generation:
            self._ending = None
        self._sockets.close_others({key for worker in self._running.values() for key in worker.listens_at})
