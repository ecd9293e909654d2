"""Workers with the same settings: they are started together, replaced one by one, and end together."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

import trio

from kafka_share_proxy.app.observing import observe
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.workers.worker_process import WorkerProcess
from kafka_share_proxy.loop.interfaces import Notes

RESTART_MIN_S, RESTART_MAX_S = 0.05, 5.0
"""Delays before a worker that ended soon is replaced. They double until one has served for SERVED_S."""
SERVED_S = RESTART_MAX_S
COVERED_S = 2.0
"""Delay before a worker that served is replaced while others serve: they need the CPU to take over its groups."""
CHECK_S = 0.02
"""Seconds between two checks whether all workers serve."""
END_S = 10.0
"""Seconds beyond `drain_s` after which a worker is killed."""


class Generation:
    """Workers of one generation, one at each place."""

    def __init__(
        self,
        config: Config,
        numbers: Sequence[int],
        new_worker: Callable[[Generation, int], WorkerProcess],
        notes: Notes,
        on_ended: Callable[[Generation], None] = lambda _generation: None,
    ) -> None:
        """`numbers`: those of its workers by place. A worker that replaces another has its number, and so its name.

        `new_worker` returns a new worker for a place. `on_ended`: called when a worker has ended."""
        self.config = config
        self.numbers = numbers
        self.failed: int | None = None
        """Exit status of a worker that ended by itself before all served. Another attempt would end likewise."""
        self._new_worker = new_worker
        self._notes = notes
        self._on_ended = on_ended
        self._workers: dict[int, WorkerProcess] = {}
        self.was_ready = False
        self._over = trio.Event()

    @property
    def places(self) -> range:
        return range(len(self.numbers))

    @property
    def is_ready(self) -> bool:
        """True if every place has a worker that accepts clients."""
        return len(self._workers) == len(self.places) and all(each.serves for each in self._workers.values())

    async def keep(self, place: int) -> None:
        """Keep one worker at this place until the generation ends."""
        delay = RESTART_MIN_S
        while not self._over.is_set():
            worker = self._workers[place] = self._new_worker(self, place)
            began = trio.current_time()
            await worker.ended.wait()
            status = worker.status or 0
            if self._over.is_set():
                return
            if status > 0 and not self.was_ready:
                self.failed = status
                return
            self._on_ended(self)
            has_served = trio.current_time() - began >= SERVED_S
            delay_s = (COVERED_S if self.serving() else 0.0) if has_served else delay
            self._notes(observe.WORKER_ENDED, worker=worker.number, reason=_reason(status), again_in_s=delay_s)
            with trio.move_on_after(delay_s):
                await self._over.wait()
            delay = RESTART_MIN_S if has_served else min(2 * delay, RESTART_MAX_S)

    async def serves(self, stop: trio.Event) -> bool:
        """Wait until all workers accept clients. Return False if that will not happen, or after `stop`."""
        while not self.is_ready:
            if self.failed is not None or self._over.is_set() or stop.is_set():
                return False
            await trio.sleep(CHECK_S)
        self.was_ready = True
        return True

    async def end(self, how: signal.Signals) -> None:
        """Send a signal to all workers, and wait for their end. One that takes too long is killed."""
        self._over.set()
        self.signal(how)
        with trio.move_on_after(self.config.drain_s + END_S):
            await self.ended()
        self.signal(signal.SIGKILL)
        await self.ended()

    async def ended(self) -> None:
        """Wait for the end of all workers."""
        for worker in self._workers.values():
            await worker.ended.wait()

    def serving(self) -> dict[int, WorkerProcess]:
        """Return the workers that accept clients, by place."""
        return {place: worker for place, worker in self._workers.items() if worker.serves}

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all workers."""
        for worker in self._workers.values():
            worker.signal(number)


def _reason(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
