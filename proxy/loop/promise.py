"""Waiting without Trio: what the reactor's handlers await.

Theory of operation. A handler is an `async def` that awaits only `Promise`s. `Task` drives it with plain calls: it runs
until the handler awaits a promise that has no result yet, and goes on, synchronously, inside the call that settles
the promise. There is no scheduler and no queue, so between two awaits nobody else runs, and one wake-up costs about
a microsecond where a Trio task costs fifteen, as much as two forwarded requests (loop/README.md rule 3).
A task that is cancelled gets GeneratorExit at its await; `finally` blocks run.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Promise(Generic[T]):
    """One result that comes later. Settled once; later settlements are ignored (the waiter has moved on)."""

    __slots__ = ("_callbacks", "_error", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], None]] = []

    def set(self, value: T) -> None:
        """Settle with a value."""
        if not self.done:
            self._value = value
            self._settle()

    def fail(self, error: BaseException) -> None:
        """Settle with an exception, raised at the await."""
        if not self.done:
            self._error = error
            self._settle()

    def on_settled(self, callback: Callable[[], None]) -> None:
        """Call back once settled; at once if it is."""
        if self.done:
            callback()
        else:
            self._callbacks.append(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        """Take a callback back; nothing happens if it is not there."""
        if callback in self._callbacks:
            self._callbacks.remove(callback)

    def result(self) -> T:
        """The value, or the exception raised; only once settled."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # settled without error: it is a T

    def _settle(self) -> None:
        self.done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def __await__(self) -> Generator[Promise[T], None, T]:
        if not self.done:
            yield self
        return self.result()


def settled(value: T) -> Promise[T]:
    """A promise that has its value already."""
    promise: Promise[T] = Promise()
    promise.set(value)
    return promise


class Task(Generic[T]):
    """Drives one handler; `on_done(task)` is called once, with `task.error` or `task.value` set.

    A cancelled task never calls `on_done`. One that is over lets go of its coroutine and of `on_done`: nothing that
    they hold (answers, frames of megabytes) waits in a circle of references for the garbage collector.
    """

    __slots__ = ("_awaited", "_coroutine", "_on_done", "_running", "error", "finished", "value")

    def __init__(self, coroutine: Coroutine[Promise[Any], None, T], on_done: Callable[[Task[T]], None]) -> None:
        self._coroutine: Coroutine[Promise[Any], None, T] | None = coroutine
        self._on_done: Callable[[Task[T]], None] | None = on_done
        self._awaited: Promise[Any] | None = None
        self._running = False
        self.finished = False
        self.value: T | None = None
        self.error: BaseException | None = None

    def start(self) -> None:
        """Run to the first await that has to wait."""
        self._step()

    def cancel(self) -> None:
        """End the handler at its await (GeneratorExit); harmless when it has finished.

        A handler may bring its own end about (it asks, the send fails, the connection closes): then it is ended at its
        next await, since a running coroutine cannot be closed.
        """
        if self.finished:
            return
        self.finished = True
        self._on_done = None
        if self._awaited is not None:
            self._awaited.forget(self._step)
            self._awaited = None
        if not self._running:
            self._close()

    def _close(self) -> None:
        coroutine, self._coroutine = self._coroutine, None
        if coroutine is not None:
            coroutine.close()

    def _step(self) -> None:
        coroutine = self._coroutine
        if coroutine is None:
            return
        self._awaited = None
        self._running = True
        try:
            promise = coroutine.send(None)
        except StopIteration as stop:
            self._running = False
            self._finish(stop.value, None)
        except Exception as error:
            self._running = False
            self._finish(None, error)
        else:
            self._running = False
            if self.finished:
                self._close()
                return
            self._awaited = promise
            promise.on_settled(self._step)

    def _finish(self, value: T | None, error: BaseException | None) -> None:
        self._coroutine = None
        on_done, self._on_done = self._on_done, None
        if on_done is None:
            return  # cancelled
        self.finished, self.value, self.error = True, value, error
        on_done(self)


def on_its_own(coroutine: Coroutine[Promise[Any], None, T]) -> Promise[T]:
    """Run to the end whoever waits for it, or leaves: what it gives, or its error, settles the promise."""
    outcome: Promise[T] = Promise()

    def ended(task: Task[T]) -> None:
        if task.error is not None:
            outcome.fail(task.error)
        else:
            outcome.set(task.value)  # type: ignore[arg-type]  # finished without error: it is a T

    Task(coroutine, ended).start()
    return outcome


async def all_of(coroutines: Iterable[Coroutine[Promise[Any], None, T]]) -> list[T]:
    """What each gives, in order; all run at once. The first error is raised when all have ended."""
    finished: Promise[None] = Promise()

    def look(_task: Task[T]) -> None:
        if started and all(task.finished for task in tasks):
            finished.set(None)

    started = False
    tasks = [Task(coroutine, look) for coroutine in coroutines]
    try:
        for task in tasks:
            task.start()
        started = True
        if not all(task.finished for task in tasks):
            await finished
    finally:
        for task in tasks:
            task.cancel()
    for task in tasks:
        if task.error is not None:
            raise task.error
    return [task.value for task in tasks]  # type: ignore[misc]  # finished without error: each is a T
