"""Threads for computations that would block the loop (loop/README.md rule 11).

The computations mostly release the interpreter lock (decompression, the filter kernel), so the loop continues in
parallel. Large work (a batch that decompresses to tens of MiB) has a lane with a separate thread.
"""

from __future__ import annotations

import heapq
import sys
import threading
import time
from collections.abc import Callable, Hashable
from functools import partial
from itertools import count
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import outcome

from kafka_share_proxy.loop.interfaces import WorkersBusy
from kafka_share_proxy.loop.promise import Promise, settled
from kafka_share_proxy.loop.reactor import Reactor

T = TypeVar("T")

THREADS, LARGE_THREADS = 2, 1
WAITING_MAX = 1000
"""Maximum number of computations of one lane that wait for a thread."""
OWNERS_MAX = 1000
"""Maximum number of owners whose use is stored. Beyond it the half that has used least is dropped."""
EXPECTED_S = 0.001
"""Seconds charged for a computation until its duration is known."""
SWITCH_S = 0.0005
"""Seconds that a thread keeps the interpreter lock when the loop wants it (Python's own: 5 ms, at each of its
calls).
"""


class InlineWorkers:
    """Implementation of interfaces.Workers without threads, for tests."""

    def run(self, work: Callable[[], T], owner: Hashable = None, *, is_large: bool = False) -> Promise[T]:  # noqa: ARG002 - no waiting
        return settled(work())


class WorkerThreads:
    """Worker threads for computations that would block the loop."""

    def __init__(self, reactor: Reactor, threads: int = THREADS, waiting_max: int = WAITING_MAX) -> None:
        self._reactor = reactor
        self._lanes = (_Lane(threads, waiting_max), _Lane(LARGE_THREADS, waiting_max))

    def run(self, work: Callable[[], T], owner: Hashable = None, *, is_large: bool = False) -> Promise[T]:
        promise: Promise[T] = Promise()
        if not self._lanes[is_large].put(owner, partial(self._compute, work, promise)):
            promise.fail(WorkersBusy("too many computations wait for a thread"))
        return promise

    @property
    def waiting(self) -> int:
        return sum(lane.waiting for lane in self._lanes)

    def end(self) -> None:
        """Finish the waiting computations, then end the threads."""
        for lane in self._lanes:
            lane.end()

    def _compute(self, work: Callable[[], Any], promise: Promise[Any]) -> None:
        result = outcome.capture(work)
        self._reactor.call_from_thread(partial(_settle, promise, result))


class _Job(NamedTuple):
    starts: float
    """Virtual time at which its owner had used its share. The smallest goes first."""
    number: int
    owner: Hashable
    work: Callable[[], None]


class _Lane:
    """Threads and the computations that wait for them."""

    def __init__(self, threads: int, waiting_max: int) -> None:
        self._threads_max, self._waiting_max = threads, waiting_max
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()
        self._jobs: list[_Job] = []
        self._numbers = count()
        self._used: dict[Hashable, float] = {}
        self._now = 0.0
        """Virtual time of the lane: the `starts` of the job that was begun last."""
        self._is_ending = False

    @property
    def waiting(self) -> int:
        return len(self._jobs)

    def put(self, owner: Hashable, work: Callable[[], None]) -> bool:
        """Return False if too many wait already."""
        with self._changed:
            if len(self._jobs) >= self._waiting_max:
                return False
            starts = max(self._now, self._used.get(owner, 0.0))
            self._used[owner] = starts + EXPECTED_S
            heapq.heappush(self._jobs, _Job(starts, next(self._numbers), owner, work))
            self._forget_some()
            self._changed.notify()
        if len(self._threads) < self._threads_max:
            sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_S))
            thread = threading.Thread(target=self._work, name=f"worker-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return True

    def end(self) -> None:
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._is_ending = False

    def _work(self) -> None:
        while (job := self._take()) is not None:
            began = time.monotonic()
            job.work()
            self._charge(job.owner, time.monotonic() - began - EXPECTED_S)
            del job  # release its references before waiting

    def _take(self) -> _Job | None:
        with self._changed:
            while not self._jobs:
                if self._is_ending:
                    return None
                self._changed.wait()
            job = heapq.heappop(self._jobs)
            self._now = max(self._now, job.starts)
            return job

    def _charge(self, owner: Hashable, seconds: float) -> None:
        with self._changed:
            self._used[owner] = self._used.get(owner, self._now) + seconds

    def _forget_some(self) -> None:
        if len(self._used) > OWNERS_MAX:
            most = heapq.nlargest(OWNERS_MAX // 2, self._used.items(), key=itemgetter(1))
            self._used = {owner: used for owner, used in most if used > self._now}


def _settle(promise: Promise[Any], result: outcome.Outcome[Any]) -> None:
    if isinstance(result, outcome.Error):
        promise.fail(result.error)
    else:
        promise.set(result.unwrap())
