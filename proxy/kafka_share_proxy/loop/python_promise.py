"""Promises, tasks and the running owner: the Python fallback of the C extension `loop._promise` (`promise.py`)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sized
from typing import Any, Generic, TypeVar

from kafka_share_proxy.loop.callback_owners import Callback, CallbackOwner

T = TypeVar("T")


class _Running:
    """Running owner. A singleton: the loop has one thread."""

    __slots__ = ("drain", "owner", "process", "waiting")

    owner: CallbackOwner
    process: CallbackOwner
    waiting: Sized
    drain: Callback


_running = _Running()


def begin(process: CallbackOwner, waiting: Sized, drain: Callback) -> None:
    """Prepare this module, once.

    `process` runs from now on, and whenever the code of all other owners has returned. Then `drain` is called if
    `waiting` is not empty.
    """
    _running.owner = _running.process = process
    _running.waiting, _running.drain = waiting, drain


def running() -> CallbackOwner:
    """Return the owner whose callback runs now."""
    return _running.owner


def on_behalf_of(owner: CallbackOwner, callback: Callback, /) -> None:
    """Call now. An exception is passed to `owner.failed`."""
    before, _running.owner = _running.owner, owner
    try:
        callback()
    except Exception as error:
        owner.failed(error)
    finally:
        _running.owner = before
        if before is _running.process and _running.waiting:
            _running.drain()


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

    def on_settled(self, callback: Callback, owner: CallbackOwner | None = None, /) -> None:
        """Call back once settled, or immediately if it is settled and this is the owner's code."""
        if owner is None:
            owner = _running.owner
        if not self.done:
            self._callbacks.append((owner, callback))
            return
        mine = self._of(owner)
        mine.append((owner, callback))
        if len(mine) == 1:
            self._deliver_to(owner)

    def forget(self, callback: Callback, owner: CallbackOwner | None = None, /) -> None:
        """Remove a callback that was not called. `owner`: as in `on_settled`."""
        entry = _running.owner if owner is None else owner, callback
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
        running, owners = _running.owner, self._split()
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
        """Return the list of an owner's remaining callbacks, which may be extended. The promise must be settled."""
        if self._by_owner is None and (not self._callbacks or self._callbacks[0][0] is owner):
            return self._callbacks
        by_owner = self._split() if self._by_owner is None else self._by_owner
        return by_owner.setdefault(owner, [])

    def _deliver_to(self, owner: CallbackOwner) -> None:
        if owner is _running.owner:
            self._deliver()
        else:
            owner.call_soon(self._deliver)

    def _deliver(self) -> None:
        owner = _running.owner
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
        self._owner = _running.owner if owner is None else owner
        self._awaited: Promise[Any] | None = None
        self._running = False
        self.finished = False
        self.value: T | None = None
        self.error: BaseException | None = None

    def start(self) -> None:
        """Run to the first await that has to wait. Deferred if code of another owner is running."""
        if _running.owner is self._owner or _running.owner is _running.process:
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
