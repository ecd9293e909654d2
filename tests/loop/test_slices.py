"""Large work in small parts: each loop iteration runs one slice, whichever clients send large requests."""

from __future__ import annotations

from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop.promise import Promise, Task
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.loop.slices import SLICE_S, STEP_BYTES, STEPS_PER_CLOCK_READ, Slices, Work

from tests.support.manual_timers import ManualTimers


class Passing(ManualTimers):
    """Each look at the clock takes a millisecond."""

    def now(self) -> float:
        self._now += 0.001
        return self._now


def counted(work: Work, steps: int, into: list[int]) -> Task[None]:
    async def count() -> None:
        for number in range(steps):
            into.append(number)
            await work.step()

    task: Task[None] = Task(count(), lambda _: None)
    task.start()
    return task


def test_work_stops_after_its_time_and_continues_in_a_later_iteration() -> None:
    timers, done = Passing(), list[int]()
    task = counted(Work(Slices(timers)), 1000, done)
    assert len(done) <= STEPS_PER_CLOCK_READ * (1 + round(SLICE_S / 0.001))
    before = len(done)
    timers.advance(0.01)
    assert before < len(done) < 1000
    timers.advance(60)
    assert task.finished
    assert done == list(range(1000))


def test_long_elements_are_as_many_steps_as_they_take_time() -> None:
    """Group ids may be 32 KiB, and hashing one takes milliseconds."""
    timers, done = Passing(), list[int]()
    work = Work(Slices(timers))

    async def hash_long_names() -> None:
        for number in range(100):
            done.append(number)
            await work.step(STEPS_PER_CLOCK_READ * STEP_BYTES)

    Task(hash_long_names(), lambda _: None).start()
    assert len(done) <= 1 + round(SLICE_S / 0.001)


def test_one_of_all_waiters_continues_in_each_iteration() -> None:
    reactor = Reactor(new_pump)
    slices, woken = Slices(reactor), list[int]()
    for number in range(5):
        slices.wait().on_settled(lambda number=number: woken.append(number))  # type: ignore[misc]
    for turns in range(1, 6):
        reactor.iterate(0.0)
        assert woken == list(range(turns))
    reactor.shut()


def test_cancelled_waiters_do_not_delay_the_others() -> None:
    timers = ManualTimers()
    slices, done = Slices(timers), list[int]()
    task = counted(Work(slices), 10, done)
    task.cancel()
    waiting: Promise[None] = slices.wait()
    timers.advance(0.1)
    assert waiting.done


def test_without_slices_nothing_is_interrupted() -> None:
    done: list[int] = []
    assert counted(Work(), 10_000, done).finished
