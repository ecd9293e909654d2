"""Promises and tasks: waiting without Trio in the reactor's handlers, and the owners of their callbacks.

How it works: a handler is an `async def` that awaits only `Promise`s. `Task` drives it with plain calls: it runs until
the handler awaits an unsettled promise, and continues when that is settled. No other code runs between two awaits.

Every callback of a promise has an owner (`CallbackOwner`): a connection, a link, the journal, or `PROCESS` for
everything else. When a promise is settled,

- callbacks of the owner whose code settles it are called immediately, inside the call that settles the promise;
- all others are passed to `call_soon` of their owners. For a connection that is the reactor's, which calls at the end
  of the loop iteration, when no other callback is on the stack.

Callbacks of one owner are called in the order of registration. Rules: loop/README.md 9.

The running owner is known inside `on_behalf_of`, and thereby in every task and in every callback of a promise.
Elsewhere (callbacks of sockets and timers, Trio's tasks, tests) it is `PROCESS`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from functools import partial
from typing import Any, Generic, NoReturn, Protocol, TypeVar

T = TypeVar("T")

Callback = Callable[[], object]


class CallbackOwner(Protocol):
    """Owner of callbacks, compared by identity."""

    def call_soon(self, callback: Callback) -> None:
        """Call later by `on_behalf_of`, in the order of these calls, when no other owner's code is on the stack."""

    def failed(self, error: Exception) -> None:
        """End this owner, and no other: one of its callbacks has raised the error."""


class _Process:
    """Owner of all code without another owner: Trio's tasks, commands, tests."""

    __slots__ = ("scheduler",)

    def __init__(self) -> None:
        self.scheduler: Callable[[Callback], object] | None = None
        """Calls at the end of the running reactor's loop iteration. An exception then ends the process."""

    def call_soon(self, callback: Callback) -> None:
        if self.scheduler is None:
            call_soon(self, callback)
        else:
            self.scheduler(callback)

    def failed(self, error: Exception) -> None:
        """See CallbackOwner. Without a reactor it raises: there is no other receiver of the error."""
        if self.scheduler is None:
            raise error
        self.scheduler(partial(_raise, error))


def _raise(error: Exception) -> NoReturn:
    raise error


PROCESS = _Process()


class _Stack:
    """Running owner, and the calls that wait until its code has returned. A singleton: the loop has one thread."""

    __slots__ = ("is_draining", "owner", "waiting")

    def __init__(self) -> None:
        self.owner: CallbackOwner = PROCESS
        self.waiting: deque[tuple[CallbackOwner, Callback]] = deque()
        self.is_draining = False

    def drain(self) -> None:
        if self.is_draining:
            return
        self.is_draining = True
        try:
            while self.waiting:
                on_behalf_of(*self.waiting.popleft())
        finally:
            self.is_draining = False
            if self.waiting:
                self.drain()


_stack = _Stack()


def running() -> CallbackOwner:
    """Return the owner whose callback runs now."""
    return _stack.owner


def on_behalf_of(owner: CallbackOwner, callback: Callback) -> None:
    """Call now. An exception is passed to `owner.failed`."""
    before, _stack.owner = _stack.owner, owner
    try:
        callback()
    except Exception as error:
        owner.failed(error)
    finally:
        _stack.owner = before
        if _stack.waiting and before is PROCESS:
            _stack.drain()


def call_soon(owner: CallbackOwner, callback: Callback) -> None:
    """CallbackOwner.call_soon without a reactor: calls in order as soon as the code of all owners has returned."""
    _stack.waiting.append((owner, callback))
    if _stack.owner is PROCESS:
        _stack.drain()


_Entry = tuple[CallbackOwner, Callback]


class Promise(Generic[T]):
    """Future result. It is settled once; later settlements are ignored, because the waiter has moved on."""

    __slots__ = ("_by_owner", "_callbacks", "_error", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[_Entry] = []
        """After settling, all have the same owner, unless `_by_owner` is set."""
        self._by_owner: dict[CallbackOwner, list[_Entry]] | None = None
        """Set once the promise is settled, if there are several owners."""

    def set(self, value: T) -> None:
        if not self.done:
            self._value = value
            self._settle()

    def fail(self, error: BaseException) -> None:
        """Settle with an exception, raised at the await."""
        if not self.done:
            self._error = error
            self._settle()

    def on_settled(self, callback: Callback, owner: CallbackOwner | None = None) -> None:
        """Call back once settled, or immediately if it is settled and this is the owner's code."""
        if owner is None:
            owner = _stack.owner
        if not self.done:
            self._callbacks.append((owner, callback))
            return
        mine = self._of(owner)
        mine.append((owner, callback))
        if len(mine) == 1:
            self._deliver_to(owner)

    def forget(self, callback: Callback, owner: CallbackOwner | None = None) -> None:
        """Remove a callback that was not called. `owner`: as in `on_settled`."""
        entry = _stack.owner if owner is None else owner, callback
        mine = self._callbacks if self._by_owner is None else self._by_owner.get(entry[0], [])
        if entry in mine:
            mine.remove(entry)

    def result(self) -> T:
        """Return the value, or raise the exception. Only allowed once settled."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # settled without error: it is a T

    def _settle(self) -> None:
        self.done = True
        callbacks = self._callbacks
        if not callbacks:
            return
        first = callbacks[0][0]
        for owner, _ in callbacks:
            if owner is not first:
                self._deliver_to_several()
                return
        self._deliver_to(first)

    def _deliver_to_several(self) -> None:
        running, owners = _stack.owner, self._split()
        for owner in list(owners):
            if owner is not running:
                owner.call_soon(self._deliver)
        if running in owners:
            self._deliver()

    def _split(self) -> dict[CallbackOwner, list[_Entry]]:
        self._by_owner = {}
        for entry in self._callbacks:
            self._by_owner.setdefault(entry[0], []).append(entry)
        self._callbacks = []
        return self._by_owner

    def _of(self, owner: CallbackOwner) -> list[_Entry]:
        """Return the list of an owner's remaining callbacks, which may be extended. Only for settled promises."""
        if self._by_owner is None and (not self._callbacks or self._callbacks[0][0] is owner):
            return self._callbacks
        by_owner = self._split() if self._by_owner is None else self._by_owner
        return by_owner.setdefault(owner, [])

    def _deliver_to(self, owner: CallbackOwner) -> None:
        if owner is _stack.owner:
            self._deliver()
        else:
            owner.call_soon(self._deliver)

    def _deliver(self) -> None:
        owner = _stack.owner
        while True:  # each of them may register others
            mine = self._callbacks if self._by_owner is None else self._by_owner.get(owner)
            if not mine or mine[0][0] is not owner:
                return
            callback = mine.pop(0)[1]
            try:
                callback()
            except Exception as error:
                if mine:
                    owner.call_soon(self._deliver)  # `failed` of PROCESS raises
                owner.failed(error)

    def __await__(self) -> Generator[Promise[T], None, T]:
        if not self.done:
            yield self
        return self.result()


def settled(value: T) -> Promise[T]:
    promise: Promise[T] = Promise()
    promise.set(value)
    return promise


class Task(Generic[T]):
    """Runner of one handler. It calls `on_done(task)` once unless cancelled, with `task.error` or `task.value` set.

    A finished one drops its coroutine and `on_done`: their frames of megabytes would otherwise wait in a reference
    cycle for the garbage collector.
    """

    __slots__ = ("_awaited", "_coroutine", "_on_done", "_owner", "_running", "error", "finished", "value")

    def __init__(
        self,
        coroutine: Coroutine[Promise[Any], None, T],
        on_done: Callable[[Task[T]], None],
        owner: CallbackOwner | None = None,
    ) -> None:
        """`owner`: on whose behalf the handler runs and `on_done` is called. None: the running owner."""
        self._coroutine: Coroutine[Promise[Any], None, T] | None = coroutine
        self._on_done: Callable[[Task[T]], None] | None = on_done
        self._owner = _stack.owner if owner is None else owner
        self._awaited: Promise[Any] | None = None
        self._running = False
        self.finished = False
        self.value: T | None = None
        self.error: BaseException | None = None

    def start(self) -> None:
        """Run to the first await that has to wait. Deferred if code of another owner is running."""
        if _stack.owner is self._owner or _stack.owner is PROCESS:
            on_behalf_of(self._owner, self._step)
        else:
            self._owner.call_soon(self._step)

    def cancel(self) -> None:
        """End the handler at its await (GeneratorExit), if it has not finished.

        Its `finally` blocks have run when this returns. Their exceptions are passed to the task's owner. A handler that
        causes its own end is ended at its next await, since a running coroutine cannot be closed.
        """
        if self.finished:
            return
        self.finished = True
        self._on_done = None
        if self._awaited is not None:
            self._awaited.forget(self._step, self._owner)
            self._awaited = None
        if not self._running:
            self._close()

    def _close(self) -> None:
        coroutine, self._coroutine = self._coroutine, None
        if coroutine is not None:
            on_behalf_of(self._owner, coroutine.close)

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
            promise.on_settled(self._step, self._owner)

    def _finish(self, value: T | None, error: BaseException | None) -> None:
        self._coroutine = None
        on_done, self._on_done = self._on_done, None
        if on_done is None:
            return  # cancelled
        self.finished, self.value, self.error = True, value, error
        on_done(self)


def on_its_own(coroutine: Coroutine[Promise[Any], None, T]) -> Promise[T]:
    """Run to the end, even if no caller waits."""
    outcome: Promise[T] = Promise()

    def ended(task: Task[T]) -> None:
        if task.error is not None:
            outcome.fail(task.error)
        else:
            outcome.set(task.value)  # type: ignore[arg-type]  # finished without error: it is a T

    Task(coroutine, ended).start()
    return outcome


async def all_of(coroutines: Iterable[Coroutine[Promise[Any], None, T]]) -> list[T]:
    """Return the results in order, or raise the first error after all have ended."""
    finished: Promise[None] = Promise()

    def note_end(_task: Task[T]) -> None:
        if started and all(task.finished for task in tasks):
            finished.set(None)

    started = False
    tasks = [Task(coroutine, note_end) for coroutine in coroutines]
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
