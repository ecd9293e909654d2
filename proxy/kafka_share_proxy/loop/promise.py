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

Every request served here pays for these classes. They are the C extension `loop._promise`, or its Python fallback
`python_promise`. `KERNEL` names the one in use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from kafka_share_proxy.loop.callback_owners import Callback, CallbackOwner
from kafka_share_proxy.wire import kernels

BUILT_VERSION = 1
"""`VERSION` of the extension that matches this file. Another one is not used."""

if TYPE_CHECKING:
    from kafka_share_proxy.loop.python_promise import Promise, Task, begin, on_behalf_of, running

    KERNEL = kernels.choose("loop._promise", None, BUILT_VERSION)
else:
    try:
        from kafka_share_proxy.loop import _promise
    except ImportError:  # no compiler was available at installation
        _promise = None

    KERNEL = kernels.choose("loop._promise", _promise, BUILT_VERSION)
    if KERNEL == "c":
        from kafka_share_proxy.loop._promise import Promise, Task, begin, on_behalf_of, running
    else:
        from kafka_share_proxy.loop.python_promise import Promise, Task, begin, on_behalf_of, running

__all__ = [
    "KERNEL",
    "PROCESS",
    "Callback",
    "CallbackOwner",
    "Promise",
    "Task",
    "all_of",
    "call_soon",
    "on_behalf_of",
    "on_its_own",
    "running",
    "settled",
]

T = TypeVar("T")


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


class _Waiting:
    """Calls of `call_soon` that wait until the code of all owners has returned."""

    def __init__(self) -> None:
        self.calls: deque[tuple[CallbackOwner, Callback]] = deque()
        self._is_draining = False

    def drain(self) -> None:
        if self._is_draining:
            return
        self._is_draining = True
        try:
            while self.calls:
                on_behalf_of(*self.calls.popleft())
        finally:
            self._is_draining = False
            if self.calls:
                self.drain()


_waiting = _Waiting()
begin(PROCESS, _waiting.calls, _waiting.drain)


def call_soon(owner: CallbackOwner, callback: Callback) -> None:
    """CallbackOwner.call_soon without a reactor: calls in order as soon as the code of all owners has returned."""
    _waiting.calls.append((owner, callback))
    if running() is PROCESS:
        _waiting.drain()


def settled(value: T) -> Promise[T]:
    promise: Promise[T] = Promise()
    promise.set(value)
    return promise


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
