"""The loop as its own host, and as host of Trio."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import trio
import trio.lowlevel
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop.polling import READ
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.reactor import SPREAD_S, Reactor, no_pump
from kafka_share_proxy.wire.errors import LocalProtocolError

LIMIT_S = 10.0


class Owner:
    """Owner of a socket of the loop, which records its calls."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.masks: list[int] = []
        self.failures: list[Exception] = []

    def ready(self, mask: int) -> None:
        self.masks.append(mask)
        if self.error is not None:
            raise self.error

    def failed(self, error: Exception) -> None:
        self.failures.append(error)


@pytest.fixture(params=[new_pump, no_pump], ids=["pump", "python"])
def reactor(request: pytest.FixtureRequest) -> Iterator[Reactor]:
    new_reactor = Reactor(request.param)
    yield new_reactor
    new_reactor.shut()


def iterate_until(reactor: Reactor, condition: object) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        reactor.iterate(0.01)


# the loop alone


def test_unread_bytes_are_reported_again(reactor: Reactor, pair: tuple[socket.socket, socket.socket]) -> None:
    owner = Owner()
    reactor.register(pair[0].fileno(), READ, owner.ready)
    pair[1].send(b"x")
    reactor.iterate(1)
    reactor.iterate(1)
    assert owner.masks == [READ, READ]


def test_timers_ring_in_order_at_their_time_and_not_when_cancelled(reactor: Reactor) -> None:
    rung: list[str] = []
    start = reactor.now()
    reactor.call_at(start + 0.02, lambda: rung.append("later"))
    reactor.call_at(start + 0.01, lambda: rung.append("sooner"))
    reactor.call_at(start - 1, lambda: rung.append("overdue"))
    cancelled = reactor.call_at(start + 0.005, lambda: rung.append("never"))
    cancelled.cancel()
    cancelled.cancel()
    iterate_until(reactor, lambda: len(rung) == 3)
    assert rung == ["overdue", "sooner", "later"]
    assert reactor.now() >= start + 0.02


def test_a_timer_may_set_and_cancel_others(reactor: Reactor) -> None:
    rung: list[str] = []
    now = reactor.now()
    second = reactor.call_at(now + 0.001, lambda: rung.append("second"))

    def first() -> None:
        rung.append("first")
        second.cancel()
        reactor.call_at(now, lambda: rung.append("third"))

    reactor.call_at(now, first)
    iterate_until(reactor, lambda: "third" in rung)
    assert rung == ["first", "third"]


def test_the_wall_clock_is_in_milliseconds(reactor: Reactor) -> None:
    assert abs(reactor.wall_ms() - time.time() * 1000) < 1000


def test_call_soon_runs_at_the_end_of_the_iteration_and_a_call_from_it_in_the_next(reactor: Reactor) -> None:
    owner, called = Owner(), []

    def first() -> None:
        called.append(1)
        reactor.call_soon(owner, lambda: called.append(2))

    reactor.call_soon(owner, first)
    reactor.iterate(0)
    assert called == [1]
    reactor.iterate(0)
    assert called == [1, 2]


def test_exception_of_a_callback_is_passed_to_its_owner_only(
    reactor: Reactor, pair: tuple[socket.socket, socket.socket]
) -> None:
    broken, healthy = Owner(ZeroDivisionError("a bug")), Owner()
    reactor.register(pair[0].fileno(), READ, broken.ready)
    reactor.register(pair[1].fileno(), READ, healthy.ready)
    pair[0].send(b"x")
    pair[1].send(b"x")
    reactor.iterate(1)
    assert [type(error) for error in broken.failures] == [ZeroDivisionError]
    assert (healthy.masks, healthy.failures) == ([READ], [])


def test_a_descriptor_unregistered_in_an_iteration_gets_no_event_of_it(
    reactor: Reactor, pair: tuple[socket.socket, socket.socket]
) -> None:
    """Each callback takes the other's registration away: only one may run."""
    called: list[int] = []

    class Rival(Owner):
        def __init__(self, other: int) -> None:
            super().__init__()
            self.other = other

        def ready(self, mask: int) -> None:
            called.append(mask)
            reactor.unregister(self.other)

    reactor.register(pair[0].fileno(), READ, Rival(pair[1].fileno()).ready)
    reactor.register(pair[1].fileno(), READ, Rival(pair[0].fileno()).ready)
    pair[0].send(b"x")
    pair[1].send(b"x")
    reactor.iterate(1)
    assert called == [READ]


def test_a_socket_is_closed_at_the_end_of_the_iteration(
    reactor: Reactor, pair: tuple[socket.socket, socket.socket]
) -> None:
    states: list[int] = []

    class Closing(Owner):
        def ready(self, mask: int) -> None:
            reactor.unregister(pair[0].fileno())
            reactor.close(pair[0])
            states.append(pair[0].fileno())

    reactor.register(pair[0].fileno(), READ, Closing().ready)
    pair[1].send(b"x")
    reactor.iterate(1)
    assert states[0] >= 0
    assert pair[0].fileno() == -1


# as host of Trio


def test_trio_runs_as_guest_and_its_result_is_returned(reactor: Reactor) -> None:
    async def main() -> str:
        await trio.sleep(0.01)
        await trio.to_thread.run_sync(time.sleep, 0.01)
        return "done"

    assert reactor.run(main) == "done"


def test_exception_of_main_is_raised(reactor: Reactor) -> None:
    async def main() -> None:
        await trio.lowlevel.checkpoint()
        raise KeyError("main")

    with pytest.raises(KeyError, match="main"):
        reactor.run(main)


def test_sockets_are_served_while_trio_sleeps(reactor: Reactor, pair: tuple[socket.socket, socket.socket]) -> None:
    event = trio.Event()

    class Echo(Owner):
        def ready(self, mask: int) -> None:
            pair[0].send(pair[0].recv(100).upper())
            if not event.is_set():
                event.set()

    async def main() -> bytes:
        reactor.register(pair[0].fileno(), READ, Echo().ready)
        await trio.to_thread.run_sync(pair[1].send, b"x")
        with trio.fail_after(LIMIT_S):
            await event.wait()
        return await trio.to_thread.run_sync(pair[1].recv, 100)

    assert reactor.run(main) == b"X"


def test_trio_continues_while_sockets_are_busy(reactor: Reactor, pair: tuple[socket.socket, socket.socket]) -> None:
    """Neither starves the other: a socket that is always ready does not stop Trio's tasks."""
    busy = Owner()

    async def main() -> int:
        reactor.register(pair[0].fileno(), READ, busy.ready)
        pair[1].send(b"never read")
        with trio.fail_after(LIMIT_S):
            for _ in range(100):
                await trio.sleep(0.0001)
        return len(busy.masks)

    assert reactor.run(main) > 50


def test_busy_trio_tasks_do_not_stop_the_sockets(reactor: Reactor, pair: tuple[socket.socket, socket.socket]) -> None:
    served = trio.Event()

    class Served(Owner):
        def ready(self, mask: int) -> None:
            pair[0].recv(100)
            served.set()

    async def main() -> int:
        reactor.register(pair[0].fileno(), READ, Served().ready)
        pair[1].send(b"x")
        checkpoints = 0
        while not served.is_set():
            await trio.lowlevel.checkpoint()
            checkpoints += 1
            assert checkpoints < 10_000
        return checkpoints

    assert reactor.run(main) <= 20


def test_an_error_of_the_loop_cancels_trio_which_still_cleans_up(reactor: Reactor) -> None:
    """The loop runs on until Trio has ended: its clean-up may need it."""
    steps: list[str] = []

    def fatal() -> None:
        raise MemoryError("a timer")

    async def main() -> None:
        try:
            reactor.call_at(reactor.now(), fatal)
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.02)
                await trio.to_thread.run_sync(steps.append, "cleaned up")

    with pytest.raises(MemoryError, match="a timer"):
        reactor.run(main)
    assert steps == ["cleaned up"]


def test_base_exception_of_a_callback_ends_the_run(reactor: Reactor, pair: tuple[socket.socket, socket.socket]) -> None:
    owner = Owner(KeyboardInterrupt())

    async def main() -> None:
        reactor.register(pair[0].fileno(), READ, owner.ready)
        pair[1].send(b"x")
        await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        reactor.run(main)
    assert owner.failures == []


def test_signals_are_received_by_a_trio_task(reactor: Reactor) -> None:
    async def main() -> int:
        with trio.open_signal_receiver(signal.SIGUSR1) as received:
            reactor.call_at(reactor.now() + 0.01, lambda: os.kill(os.getpid(), signal.SIGUSR1))
            with trio.fail_after(LIMIT_S):
                async for number in received:
                    return int(number)
        return 0

    assert reactor.run(main) == signal.SIGUSR1


def test_reactor_runs_in_the_main_thread_only(reactor: Reactor) -> None:
    errors: list[BaseException] = []

    async def main() -> None: ...

    def elsewhere() -> None:
        try:
            reactor.run(main)
        except LocalProtocolError as error:
            errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(LIMIT_S)
    assert len(errors) == 1


def test_calls_from_other_threads_wake_the_loop(reactor: Reactor) -> None:
    """Trio's worker threads come back through the bell; without it the loop would sleep for a minute."""

    async def main() -> float:
        start = time.monotonic()
        for _ in range(5):
            await trio.to_thread.run_sync(time.sleep, 0.001)
        return time.monotonic() - start

    assert reactor.run(main) < 5.0


def test_work_spread_over_iterations_lets_others_run_in_between(
    reactor: Reactor, pair: tuple[socket.socket, socket.socket]
) -> None:
    """Hundreds of simultaneous TLS handshakes do not make other clients wait for all of them."""
    ours, theirs = pair
    owner, called = Owner(), []

    def takes_long() -> None:
        time.sleep(2 * SPREAD_S)
        called.append(time.monotonic())

    for _ in range(5):
        reactor.call_in_later_iteration(owner, takes_long)
    reactor.register(ours.fileno(), READ, owner.ready)
    theirs.send(b"x")
    for number in range(1, 6):
        reactor.iterate(LIMIT_S)
        assert (len(called), len(owner.masks)) == (number, number)
    reactor.unregister(ours.fileno())


def test_short_work_is_done_together(reactor: Reactor) -> None:
    called: list[int] = []
    for number in range(20):
        reactor.call_in_later_iteration(Owner(), lambda number=number: called.append(number))  # type: ignore[misc]
    reactor.iterate(0)
    assert called == list(range(20))


def test_exception_of_spread_work_is_passed_to_its_owner(reactor: Reactor) -> None:
    owner, called = Owner(), []

    def fails() -> None:
        raise ValueError("fails")

    reactor.call_in_later_iteration(owner, fails)
    reactor.call_in_later_iteration(owner, lambda: called.append(1))
    reactor.iterate(0)
    assert ([str(error) for error in owner.failures], called) == (["fails"], [1])


class Pump:
    """Pump that waits for nothing and records its calls."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments
        self.reported: list[tuple[object, ...]] = []

    def iterate(self, wait_s: float) -> None:
        self.reported.append(("iterate", wait_s))

    def connect(self, fd: int, walk: object, out_fd: int, receives: object, sends: object) -> None:
        self.reported.append(("connect", fd, walk, out_fd, receives, sends))

    def send_later(self, fd: int, data: bytes) -> None:
        self.reported.append(("send_later", fd, data))

    def forget(self, fd: int) -> None:
        self.reported.append(("forget", fd))

    def interrupt(self) -> None:
        self.reported.append(("interrupt",))


def test_a_pump_that_is_handed_in_waits_in_place_of_the_loop(pair: tuple[socket.socket, socket.socket]) -> None:
    """It gets the receive buffer, the callbacks and the iterations, and every closed socket."""
    pumps: list[Pump] = []

    def make(*arguments: object) -> Pump:
        pumps.append(Pump(*arguments))
        return pumps[0]

    reactor, walk = Reactor(make), object()
    (pump,) = pumps
    queues = reactor._calls, reactor._later_calls
    assert pump.arguments[1:] == (reactor.buffer, reactor._ready, reactor.iterations, queues)
    fd = pair[0].fileno()
    send_later = reactor.pass_on(fd, walk, 7)
    assert send_later is not None
    send_later(b"data")
    reactor.close(pair[0])
    reactor.iterate(1.0)
    assert pump.reported == [
        ("connect", fd, walk, 7, None, None),
        ("send_later", fd, b"data"),
        ("forget", fd),
        ("iterate", 0.0),
    ]
    reactor.shut()


def test_alarm_that_is_due_before_all_others_interrupts_the_pump() -> None:
    pump = Pump()
    reactor = Reactor(lambda *_: pump)
    for deadline in (2.0, 3.0, 1.0, 1.0):
        reactor.call_at(reactor.now() + deadline, lambda: None)
    assert pump.reported == [("interrupt",), ("interrupt",)]
    reactor.shut()


def test_without_a_pump_no_bytes_are_forwarded_by_the_loop(pair: tuple[socket.socket, socket.socket]) -> None:
    """`pass_on` is a wish: the callback of the socket is called as ever."""
    reactor, owner = Reactor(), Owner()
    reactor.register(pair[0].fileno(), READ, owner.ready)
    reactor.pass_on(pair[0].fileno(), object(), 7)
    pair[1].send(b"x")
    iterate_until(reactor, lambda: owner.masks)
    assert owner.masks == [READ]
    reactor.unregister(pair[0].fileno())
    reactor.shut()


def test_callbacks_of_the_process_itself_are_called_in_a_stack_of_their_own(reactor: Reactor) -> None:
    """While the loop runs; what they raise ends it, and no connection that settled a promise."""
    party, called = Party(), []
    promise: Promise[int] = Promise()

    def fails() -> None:
        called.append("callback")
        raise KeyError("of nobody")

    def settle() -> None:
        promise.set(1)
        called.append("settled")

    async def main() -> None:
        promise.on_settled(fails)
        reactor.call_on_behalf_of(party, settle)
        await trio.sleep_forever()

    with pytest.raises(KeyError, match="of nobody"):
        reactor.run(main)
    assert called == ["settled", "callback"]
    assert party.failures == []


class Party(Owner):
    """Owns callbacks of promises too."""

    def call_soon(self, callback: Callable[[], object]) -> None:
        raise AssertionError("nobody waits on its behalf")
