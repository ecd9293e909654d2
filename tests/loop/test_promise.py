"""Promises and tasks: the waiting of handlers, driven by plain calls. Each test runs with the C extension and with its
Python fallback.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_share_proxy.loop import promise as chosen
from kafka_share_proxy.loop import python_promise
from kafka_share_proxy.loop.promise import (
    PROCESS,
    Callback,
    CallbackOwner,
    Promise,
    Task,
    all_of,
    call_soon,
    on_behalf_of,
    on_its_own,
    running,
    settled,
)

KERNELS: dict[str, ModuleType] = {"python": python_promise}
if chosen._promise is not None:
    KERNELS["c"] = chosen._promise


@contextmanager
def using(kernel: ModuleType) -> Iterator[None]:
    """Put a kernel in place of the chosen one, in its module and here."""
    if kernel is python_promise:
        python_promise.begin(PROCESS, chosen._waiting.calls, chosen._waiting.drain)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("Promise", "Task", "on_behalf_of", "running"):
            patch.setattr(chosen, name, getattr(kernel, name))
            patch.setitem(globals(), name, getattr(kernel, name))
        yield


@pytest.fixture(params=sorted(KERNELS), scope="module", autouse=True)
def kernel(request: pytest.FixtureRequest) -> Iterator[None]:
    with using(KERNELS[request.param]):
        yield


def test_the_extension_is_in_use_where_it_was_built() -> None:
    if chosen._promise is None:
        pytest.skip("it was not built")
    assert chosen.KERNEL == "c"


class Ended:
    """Collects what a task called back with."""

    def __init__(self) -> None:
        self.tasks: list[Task[object]] = []

    def __call__(self, task: Task[object]) -> None:
        self.tasks.append(task)


def test_a_handler_runs_to_its_first_wait_and_continues_inside_the_call_that_settles_it() -> None:
    promise: Promise[int] = Promise()
    steps: list[str] = []

    async def handler() -> int:
        steps.append("before")
        value = await promise
        steps.append("after")
        return value + 1

    ended = Ended()
    Task(handler(), ended).start()
    assert steps == ["before"]
    promise.set(41)
    assert steps == ["before", "after"]
    assert ended.tasks[0].value == 42


def test_a_settled_promise_does_not_make_the_handler_wait() -> None:
    async def handler() -> int:
        return await settled(7)

    ended = Ended()
    Task(handler(), ended).start()
    assert ended.tasks[0].value == 7


def test_a_failed_promise_raises_at_the_await_and_ends_in_task_error() -> None:
    promise: Promise[int] = Promise()

    async def handler() -> int:
        return await promise

    ended = Ended()
    Task(handler(), ended).start()
    promise.fail(ValueError("broken"))
    assert isinstance(ended.tasks[0].error, ValueError)


def test_a_later_settlement_changes_nothing() -> None:
    promise: Promise[int] = Promise()
    promise.set(1)
    promise.set(2)
    promise.fail(ValueError("late"))
    assert promise.result() == 1


def test_a_cancelled_handler_runs_its_finally_and_never_calls_back() -> None:
    promise: Promise[int] = Promise()
    cleaned: list[bool] = []

    async def handler() -> int:
        try:
            return await promise
        finally:
            cleaned.append(True)

    ended = Ended()
    task = Task(handler(), ended)
    task.start()
    task.cancel()
    promise.set(1)
    assert cleaned == [True]
    assert ended.tasks == []


def test_handler_that_cancels_itself_is_ended_at_its_next_await() -> None:
    promise: Promise[int] = Promise()
    cleaned: list[bool] = []

    async def handler() -> int:
        try:
            task.cancel()
            return await promise
        finally:
            cleaned.append(True)

    ended = Ended()
    task = Task(handler(), ended)
    task.start()
    assert cleaned == [True]
    promise.set(1)
    assert ended.tasks == []


def test_all_of_returns_results_in_order_once_the_last_has_ended():
    first: Promise[int] = Promise()
    second: Promise[int] = Promise()

    async def wait(promise: Promise[int]) -> int:
        return await promise

    task: Task[list[int]] = Task(all_of([wait(first), wait(second), wait(settled(3))]), lambda _: None)
    task.start()
    second.set(2)
    assert not task.finished
    first.set(1)
    assert task.value == [1, 2, 3]


def test_all_of_ends_the_others_with_its_waiter_and_raises_the_first_error():
    ended: list[str] = []

    async def wait(promise: Promise[int]) -> int:
        try:
            return await promise
        finally:
            ended.append("ended")

    never: Promise[int] = Promise()
    task: Task[list[int]] = Task(all_of([wait(never)]), lambda _: None)
    task.start()
    task.cancel()
    assert ended == ["ended"]
    failed: Promise[int] = Promise()
    failed.fail(ValueError("no"))
    task = Task(all_of([wait(failed), wait(settled(1))]), lambda _: None)
    task.start()
    assert isinstance(task.error, ValueError)


def test_a_call_on_its_own_completes_without_its_waiters() -> None:
    """A handler that waits for it may be cancelled; its error is raised at the await."""
    promise: Promise[int] = Promise()

    async def work() -> int:
        return await promise + 1

    outcome = on_its_own(work())

    async def handler() -> int:
        return await outcome

    task = Task(handler(), Ended())
    task.start()
    task.cancel()
    promise.set(1)
    assert outcome.result() == 2
    failing: Promise[int] = Promise()
    failing.fail(ValueError("no"))

    async def fails() -> int:
        return await failing

    with pytest.raises(ValueError, match="no"):
        on_its_own(fails()).result()


class Frame:
    """Something large that a handler touches; weakly referenced to see whether it is gone."""


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("ends", ["with a value", "cancelled", "cancelled by itself"])
def test_references_of_a_handler_are_released_at_its_end_without_a_garbage_collection(ends: str) -> None:
    """Frames of megabytes would wait for it otherwise: 30 of them were held in a busy group. (An error keeps its frames
    by its traceback.)"""
    promise: Promise[None] = Promise()
    tasks: list[Task[Frame]] = []

    async def handler(frame: Frame) -> Frame:
        await promise
        if ends == "cancelled by itself":
            tasks[0].cancel()
            await Promise()
        return frame

    def start() -> weakref.ref[Frame]:
        frame = Frame()
        tasks.append(Task(handler(frame), lambda task: tasks.remove(task)))
        tasks[0].start()
        return weakref.ref(frame)

    held = start()
    assert held() is not None
    if ends == "cancelled":
        tasks.pop().cancel()
    else:
        promise.set(None)
    tasks.clear()
    assert held() is None


@pytest.mark.usefixtures("no_collector")
def test_references_of_several_handlers_are_released_at_their_end_too() -> None:
    promise: Promise[None] = Promise()
    held: list[weakref.ref[Frame]] = []

    async def one() -> Frame:
        frame = Frame()
        held.append(weakref.ref(frame))
        await promise
        return frame

    async def several() -> int:
        return len(await all_of([one(), one(), on_its_own_of(one())]))

    async def on_its_own_of(coroutine: Coroutine[Promise[Any], None, Frame]) -> Frame:
        return await on_its_own(coroutine)

    ended: list[int | None] = []
    Task(several(), lambda task: ended.append(task.value)).start()
    promise.set(None)
    assert ended == [3]
    assert [frame() for frame in held] == [None] * 3


# Whose code runs


class Trouble(Exception):
    """Exception of an owner's callback."""


class Party:
    """An owner of callbacks. Records its calls; checks that none of its callbacks runs below another owner's."""

    stack: list[Party]

    def __init__(self, stack: list[Party], later: Callable[[Party, Callback], None] = call_soon) -> None:
        self.stack = stack
        self.later = later
        self.failures: list[Exception] = []

    def call_soon(self, callback: Callback) -> None:
        self.later(self, callback)

    def failed(self, error: Exception) -> None:
        self.failures.append(error)

    @contextmanager
    def runs(self) -> Iterator[None]:
        assert running() is self
        assert all(party is self for party in self.stack)
        self.stack.append(self)
        try:
            yield
        finally:
            self.stack.pop()


def parties(count: int) -> list[Party]:
    stack: list[Party] = []
    return [Party(stack) for _ in range(count)]


def test_callbacks_of_others_are_called_when_the_code_that_settled_has_returned() -> None:
    mine, other = parties(2)
    promise: Promise[int] = Promise()
    called: list[str] = []
    promise.on_settled(lambda: called.append("other"), other)
    promise.on_settled(lambda: called.append("mine"), mine)

    def settle() -> None:
        promise.set(1)
        called.append("settled")

    on_behalf_of(mine, settle)
    assert called == ["mine", "settled", "other"]


def test_exception_of_a_callback_is_passed_to_its_owner_and_all_others_are_called() -> None:
    broken, other = parties(2)
    promise: Promise[int] = Promise()
    called: list[str] = []

    def fails() -> None:
        raise Trouble

    promise.on_settled(fails, broken)
    promise.on_settled(lambda: called.append("same owner"), broken)
    promise.on_settled(lambda: called.append("other"), other)
    promise.set(1)
    assert called == ["same owner", "other"]
    assert [type(error) for error in broken.failures] == [Trouble]
    assert other.failures == []


def test_owner_of_a_callback_is_by_default_the_running_one() -> None:
    (mine,) = parties(1)
    promise: Promise[int] = Promise()
    owners: list[CallbackOwner] = []
    on_behalf_of(mine, lambda: promise.on_settled(lambda: owners.append(running())))
    promise.set(1)
    assert owners == [mine]
    assert running() is PROCESS


def test_exception_of_the_process_itself_is_raised_without_a_reactor_and_the_rest_is_called() -> None:
    promise: Promise[int] = Promise()
    called: list[int] = []

    def fails() -> None:
        raise Trouble

    promise.on_settled(fails)
    promise.on_settled(lambda: called.append(1))
    with pytest.raises(Trouble):
        promise.set(1)
    assert called == [1]


def test_exception_of_the_process_itself_is_passed_to_its_scheduler() -> None:
    """It ends the process; the code that settles the promise continues."""
    promise: Promise[int] = Promise()
    soon: list[Callback] = []

    def fails() -> None:
        raise Trouble

    promise.on_settled(fails)
    PROCESS.scheduler = soon.append
    try:
        promise.set(1)
    finally:
        PROCESS.scheduler = None
    with pytest.raises(Trouble):
        soon.pop()()


def test_callback_that_was_not_called_yet_can_be_removed() -> None:
    mine, other = parties(2)
    promise: Promise[int] = Promise()
    called: list[int] = []

    def callback() -> None:
        called.append(1)

    promise.on_settled(callback, other)

    def settle() -> None:
        promise.set(1)
        promise.forget(callback, other)

    on_behalf_of(mine, settle)
    assert called == []


def test_a_task_of_another_owner_does_not_begin_inside_this_ones_code() -> None:
    mine, other = parties(2)
    steps: list[object] = []

    async def handler() -> None:
        steps.append(running())

    def begin() -> None:
        Task(handler(), Ended(), other).start()
        steps.append("begun")

    on_behalf_of(mine, begin)
    assert steps == ["begun", other]


def test_exception_of_a_cancelled_handler_is_passed_to_its_owner() -> None:
    mine, other = parties(2)

    async def handler() -> None:
        try:
            await Promise()
        finally:
            raise Trouble

    task = Task(handler(), Ended(), other)
    task.start()
    on_behalf_of(mine, task.cancel)
    assert [type(error) for error in other.failures] == [Trouble]
    assert mine.failures == []


def test_callbacks_of_many_owners_are_called_in_the_order_of_registration() -> None:
    many = parties(5)
    promise: Promise[int] = Promise()
    called: list[tuple[Party, int]] = []
    expected: dict[Party, list[int]] = {party: [] for party in many}
    for number in range(60):
        party = many[number * number % 5]
        promise.on_settled(lambda party=party, number=number: called.append((party, number)), party)
        expected[party].append(number)
    promise.set(1)
    assert {party: [number for whose, number in called if whose is party] for party in many} == expected


def test_equal_methods_are_the_same_callback_and_the_order_of_the_others_remains() -> None:
    called: list[int] = []
    kept: list[int] = []
    promise: Promise[int] = Promise()
    for number in range(10):
        promise.on_settled(lambda number=number: called.append(number))
        promise.on_settled(kept.clear)
    for _ in range(10):
        promise.forget(kept.clear)
    promise.forget(kept.clear)
    promise.forget(kept.copy)
    kept.append(1)
    promise.set(1)
    assert called == list(range(10))
    assert kept == [1]


@pytest.mark.parametrize("value", [None, 7, (), (1, 2), ValueError("a value"), StopIteration(3)], ids=repr)
def test_an_await_returns_any_value(value: object) -> None:
    promise: Promise[object] = Promise()

    async def handler() -> object:
        return await promise, await promise

    task: Task[object] = Task(handler(), Ended())
    task.start()
    promise.set(value)
    assert task.error is None
    assert task.value == (value, value)
    assert promise.result() is value


def test_error_of_an_await_is_the_one_that_the_promise_failed_with() -> None:
    promise: Promise[int] = Promise()
    error = Trouble()

    async def handler() -> int:
        try:
            return await promise
        except Trouble as raised:
            raise ValueError("of the handler") from raised

    task = Task(handler(), Ended())
    task.start()
    promise.fail(error)
    promise.set(1)
    assert isinstance(task.error, ValueError)
    assert task.error.__cause__ is error
    assert task.error.__traceback__ is not None
    assert task.value is None
    with pytest.raises(Trouble) as caught:
        promise.result()
    assert caught.value is error


def test_an_error_is_being_handled_while_its_owner_fails() -> None:
    """An exception that the owner raises then has the error as its context."""
    handled: list[BaseException | None] = []

    class Failing(Party):
        def failed(self, error: Exception) -> None:
            handled.append(sys.exc_info()[1])
            raise ValueError("again")

    def fails() -> None:
        raise Trouble

    with pytest.raises(ValueError, match="again") as raised:
        on_behalf_of(Failing([]), fails)
    assert handled == [raised.value.__context__]
    assert isinstance(handled[0], Trouble)
    assert sys.exc_info() == (None, None, None)
    assert running() is PROCESS


@pytest.mark.parametrize("place", ["callback", "handler", "on behalf of"])
def test_an_exception_that_ends_the_process_is_no_failure_of_its_owner(place: str) -> None:
    mine, other = parties(2)
    called: list[str] = []

    def interrupted() -> None:
        other.call_soon(lambda: called.append("other"))
        raise KeyboardInterrupt

    async def handler() -> None:
        interrupted()

    promise: Promise[int] = Promise()
    promise.on_settled(interrupted, mine)
    run = {
        "callback": lambda: promise.set(1),
        "handler": lambda: Task(handler(), Ended(), mine).start(),
        "on behalf of": lambda: on_behalf_of(mine, interrupted),
    }[place]
    with pytest.raises(KeyboardInterrupt):
        run()
    assert called == ["other"]
    assert mine.failures == []
    assert running() is PROCESS


def test_a_handler_that_awaits_something_else_fails_its_owner() -> None:
    (mine,) = parties(1)

    class Other:
        def __await__(self) -> Any:
            yield self

    async def handler() -> None:
        await Other()

    task = Task(handler(), Ended(), mine)
    task.start()
    assert isinstance(mine.failures[0], TypeError | AttributeError)
    assert not task.finished


def test_arguments_are_checked() -> None:
    promise: Promise[int] = Promise()

    async def handler() -> None:
        pass

    coroutine = handler()
    wrong: list[Callable[[], object]] = [
        *(lambda: Promise(1), lambda: Promise(value=1), lambda: Task(coroutine), lambda: Task(coroutine, print, who=1)),
        *(promise.on_settled, promise.forget, lambda: promise.on_settled(print, None, 1), on_behalf_of),
    ]
    for call in wrong:
        with pytest.raises(TypeError):
            call()
    task: Task[None] = Task(coroutine=coroutine, on_done=Ended(), owner=None)
    task.start()
    assert task.finished


@pytest.mark.usefixtures("no_collector")
def test_abandoned_waits_are_found_by_the_garbage_collector() -> None:
    """A promise and the callbacks that it would call, and a task and the promise that only it knows."""

    def abandon() -> list[weakref.ref[Frame]]:
        frames = [Frame(), Frame(), Frame()]
        promise: Promise[object] = Promise()
        for _ in range(3):
            promise.on_settled(lambda frame=frames[0]: promise.set(frame), Party([]))

        async def handler(frame: Frame) -> Frame:
            await Promise()
            return frame

        task = Task(handler(frames[1]), lambda _, frame=frames[2]: print(frame, task), Party([]))
        task.start()
        return [weakref.ref(frame) for frame in frames]

    frames = abandon()
    assert None not in [frame() for frame in frames]
    gc.collect()
    assert [frame() for frame in frames] == [None] * 3


def test_no_reference_is_kept_or_lost() -> None:
    (mine,) = parties(1)
    value, error = object(), Trouble()

    async def handler(promise: Promise[object]) -> object:
        return await promise

    def once() -> None:
        done: Promise[object] = Promise()
        failed: Promise[object] = Promise()
        tasks = [Task(handler(promise), Ended(), mine) for promise in (done, failed, done, Promise())]
        for task in tasks:
            task.start()
        done.on_settled(running, mine)
        done.on_settled(running)
        done.forget(running)
        failed.fail(error)
        done.set(value)
        tasks[3].cancel()
        assert [task.value for task in tasks] == [value, None, value, None]

    counted = (mine, value, error, PROCESS, running, None, Promise, Task)
    once()
    gc.collect()
    before = [sys.getrefcount(each) for each in counted]
    for _ in range(100):
        once()
        error.__traceback__ = None
    gc.collect()
    assert [sys.getrefcount(each) for each in counted] == pytest.approx(before, abs=50)


OWNERS, PROMISES = 3, 4

Script = list[tuple[Any, ...]]
"""Actions of one piece of code, in order; references are taken modulo the number of objects."""


def scripts(depth: int) -> st.SearchStrategy[Script]:
    number = st.integers(0, 7)
    inner: st.SearchStrategy[Script] = st.just([]) if depth == 0 else scripts(depth - 1)
    steps = st.one_of(
        st.tuples(st.just("settle"), number, st.booleans()),
        st.tuples(st.just("register"), number, st.none() | number, inner, st.booleans()),
        st.tuples(st.just("task"), number, st.lists(st.tuples(number, inner), max_size=3), st.booleans()),
        st.tuples(st.just("forget"), number),
        st.tuples(st.just("cancel"), number),
    )
    return st.lists(steps, max_size=4)


@dataclass(eq=False)
class Wait:
    """One callback, or one await of a task."""

    promise: int
    owner: Party
    callback: Callback | None = None
    ran: int = 0
    is_forgotten: bool = False


@dataclass(eq=False)
class Doing:
    """One task."""

    owner: Party
    task: Task[None]
    is_cancelled: bool = False
    begins: int = 0
    ends: int = 0
    dones: int = 0


class Play:
    """Promises, owners, callbacks and tasks that do what their scripts say; checks what must hold of each call."""

    def __init__(self, has_loop: bool, owners: int = OWNERS) -> None:
        self.queue: deque[tuple[Party, Callback]] = deque()
        stack: list[Party] = []
        later = self._later if has_loop else call_soon
        self.owners = [Party(stack, later) for _ in range(owners)]
        self.promises: list[Promise[int]] = [Promise() for _ in range(PROMISES)]
        self.waits: list[Wait] = []
        self.runs: list[Wait] = []
        self.tasks: list[Doing] = []
        self.raised: list[tuple[Party, Exception]] = []

    def _later(self, owner: Party, callback: Callback) -> None:
        self.queue.append((owner, callback))

    def iterate(self) -> None:
        """Run the callbacks that exist now, like the reactor."""
        for _ in range(len(self.queue)):
            on_behalf_of(*self.queue.popleft())

    def top(self, owner: int | None, script: Script) -> None:
        """Run code that the loop calls: of an owner, or of none (None)."""
        if owner is None:
            self.do(None, script)
            return
        party = self.owners[owner % len(self.owners)]

        def call() -> None:
            with party.runs():
                self.do(party, script)

        on_behalf_of(party, call)

    def finish(self) -> None:
        for promise in self.promises:
            promise.set(0)
        while self.queue:
            self.iterate()

    def do(self, mine: Party | None, script: Script) -> None:
        for name, *values in script:
            getattr(self, name)(mine, *values)

    def settle(self, _mine: Party | None, number: int, fails: bool) -> None:
        promise = self.promises[number % PROMISES]
        if fails:
            promise.fail(ValueError("failed"))
        else:
            promise.set(number)

    def register(self, mine: Party | None, number: int, owner: int | None, script: Script, raises: bool) -> None:
        party = mine if owner is None else self.owners[owner % len(self.owners)]
        if party is None:
            return
        wait = Wait(number % PROMISES, party)

        def callback() -> None:
            with party.runs():
                self._ran(wait)
                self.do(party, script)
                if raises:
                    self._raise(party)

        wait.callback = callback
        self.waits.append(wait)
        self.promises[wait.promise].on_settled(callback, None if owner is None else party)

    def task(self, mine: Party | None, owner: int, awaits: list[tuple[int, Script]], raises: bool) -> None:
        party = self.owners[owner % len(self.owners)]

        async def handler() -> None:
            doing.begins += 1
            try:
                for number, script in awaits:
                    await self._await(party, number % PROMISES)
                    with party.runs():
                        self.do(party, script)
            finally:
                assert running() is party
                doing.ends += 1

        def on_done(task: Task[None]) -> None:
            assert task.error is None
            with party.runs():
                doing.dones += 1
                if raises:
                    self._raise(party)

        doing = Doing(party, Task(handler(), on_done, party))
        self.tasks.append(doing)
        doing.task.start()

    async def _await(self, party: Party, number: int) -> None:
        promise = self.promises[number]
        if promise.done:
            return
        wait = Wait(number, party)
        self.waits.append(wait)
        try:
            await promise
        except ValueError:
            pass
        except GeneratorExit:
            wait.is_forgotten = True
            raise
        self._ran(wait)

    def forget(self, mine: Party | None, number: int) -> None:
        own = [wait for wait in self.waits if wait.callback is not None and mine in (None, wait.owner)]
        if own:
            wait = own[number % len(own)]
            assert wait.callback is not None
            self.promises[wait.promise].forget(wait.callback, wait.owner)
            wait.is_forgotten = wait.is_forgotten or not wait.ran

    def cancel(self, mine: Party | None, number: int) -> None:
        """Its owner's code does it, or the loop."""
        own = [doing for doing in self.tasks if mine in (None, doing.owner)]
        if own:
            doing = own[number % len(own)]
            doing.is_cancelled = doing.is_cancelled or not doing.task.finished
            doing.task.cancel()

    def _ran(self, wait: Wait) -> None:
        wait.ran += 1
        self.runs.append(wait)

    def _raise(self, party: Party) -> None:
        error = Trouble()
        self.raised.append((party, error))
        raise error


PIECES = st.lists(st.tuples(st.none() | st.integers(0, OWNERS - 1), scripts(3), st.booleans()), max_size=8)


def played(pieces: list[Any], has_loop: bool, owners: int = OWNERS) -> Play:
    play = Play(has_loop, owners)
    for owner, script, turns in pieces:
        play.top(owner, script)
        if turns:
            play.iterate()
    play.finish()
    return play


@given(PIECES, st.booleans())
@settings(max_examples=250, deadline=None)
def test_callbacks_of_one_owner_never_harm_another(pieces: list[Any], has_loop: bool) -> None:
    """Each is called once or was withdrawn, in order; below no other owner's code; its exceptions are its owner's."""
    play = played(pieces, has_loop)
    assert all(wait.ran + wait.is_forgotten == 1 for wait in play.waits)
    for number in range(PROMISES):
        for owner in play.owners:
            requested = [w for w in play.waits if (w.promise, w.owner) == (number, owner) and not w.is_forgotten]
            assert [w for w in play.runs if (w.promise, w.owner) == (number, owner)] == requested
    for owner in play.owners:
        assert owner.failures == [error for whose, error in play.raised if whose is owner]
    for doing in play.tasks:
        assert doing.begins == doing.ends
        assert doing.dones == (0 if doing.is_cancelled else 1)
    assert running() is PROCESS


def trace(pieces: list[Any], has_loop: bool) -> list[object]:
    """Everything that can be observed of a play: calls in their order, failures, ends of tasks.

    All of it has one owner: calls of several owners have no order among each other.
    """
    play = played(pieces, has_loop, owners=1)
    return [
        [play.waits.index(wait) for wait in play.runs],
        [(play.owners.index(owner), len(owner.failures)) for owner in play.owners],
        [(doing.begins, doing.ends, doing.dones, doing.task.finished) for doing in play.tasks],
    ]


@pytest.mark.skipif(len(KERNELS) < 2, reason="the extension was not built")
@given(PIECES, st.booleans())
@settings(max_examples=100, deadline=None)
def test_both_kernels_call_the_callbacks_of_an_owner_in_the_same_order(pieces: list[Any], has_loop: bool) -> None:
    traces = []
    for kernel in KERNELS.values():
        with using(kernel):
            traces.append(trace(pieces, has_loop))
    assert traces[0] == traces[1]
