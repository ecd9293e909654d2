"""A few threads for computations that would hold up the loop (ports.Workers).

What is computed releases the interpreter lock for the most part (decompression, the filter kernel), so the loop goes on
beside it. Results come back through the loop: a promise is settled there and nowhere else.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import outcome

from proxy.apis.promise import Promise
from proxy.runtime.reactor import Reactor

T = TypeVar("T")

THREADS = 2
WAITING_MAX = 1000
"""Computations that wait for a thread; past it whoever asks computes itself, in the loop: nothing is lost, and who
brings more than the threads can do is slowed down."""


class Workers:
    """Threads start with the first computation and end with the process, or when told to."""

    def __init__(self, reactor: Reactor, threads: int = THREADS, waiting_max: int = WAITING_MAX) -> None:
        self._reactor = reactor
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(waiting_max)
        self._threads_max = threads
        self._threads: list[threading.Thread] = []

    def run(self, work: Callable[[], T]) -> Promise[T]:
        """See ports.Workers."""
        promise: Promise[T] = Promise()
        job = partial(self._compute, work, promise)
        try:
            self._waiting.put_nowait(job)
        except queue.Full:
            _settle(promise, outcome.capture(work))
            return promise
        if len(self._threads) < self._threads_max:
            thread = threading.Thread(target=self._work, name=f"worker-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return promise

    @property
    def waiting(self) -> int:
        """Computations that no thread has taken yet."""
        return self._waiting.qsize()

    def end(self) -> None:
        """Finish what waits, then end the threads."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _work(self) -> None:
        while (job := self._waiting.get()) is not None:
            job()

    def _compute(self, work: Callable[[], Any], promise: Promise[Any]) -> None:
        result = outcome.capture(work)
        self._reactor.call_from_thread(partial(_settle, promise, result))


def _settle(promise: Promise[Any], result: outcome.Outcome[Any]) -> None:
    if isinstance(result, outcome.Error):
        promise.fail(result.error)
    else:
        promise.set(result.unwrap())
