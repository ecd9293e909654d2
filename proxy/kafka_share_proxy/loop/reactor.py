"""The one loop: it waits for every forwarded socket and hosts Trio as its guest.

Rules: loop/README.md 1 to 8. The price of the guest: a wake-up of a Trio task by its own I/O costs two thread switches.
An exception in a socket's callback closes the owner of the socket (`faults`). Any other one cancels Trio's main task.
"""

from __future__ import annotations

import heapq
import itertools
import socket
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from math import inf
from time import monotonic
from typing import Any, TypeVar

import outcome
import trio

from kafka_share_proxy.loop import faults
from kafka_share_proxy.loop.faults import serve
from kafka_share_proxy.loop.interfaces import Notes, Pump, TlsBuffers
from kafka_share_proxy.loop.iterations import NOTED_S, Iterations, TrioSteps, unnoted
from kafka_share_proxy.loop.polling import BATCH, READ, Poller, new_poller
from kafka_share_proxy.loop.promise import PROCESS, Callback, CallbackOwner, on_behalf_of
from kafka_share_proxy.wire.errors import LocalProtocolError

T = TypeVar("T")

NewPump = Callable[..., Pump | None]
"""See `forwarding.walk.pump.new_pump`."""

RECEIVE_BYTES = 256 * 1024
"""Bytes of the one receive buffer, shared by all sockets.

This allows fewer, larger reads of large frames, and needs no memory per connection.
"""

POLL_MAX_S = 60.0

SPREAD_S = 0.005
"""Maximum seconds per loop iteration for work that is spread over iterations, after the first call."""

SHARE_S = 0.001
"""Seconds that a connection may process received bytes before it calls `call_in_later_iteration` for the rest.

A frame in progress is finished.
"""

ALARMS_CROWDED = 1024
"""Number of alarms from which cancelled ones are removed, again whenever it has doubled.

Clients choose the deadlines (even days ahead), and nearly all alarms are cancelled within milliseconds.
"""


class ReactorTimer:
    """Planned call (interfaces.Timer)."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


def no_pump(*_: object) -> None:
    """Return None: the loop polls and calls back in Python (`faults.serve`)."""


class Reactor:
    """Sockets, timers and the guest. One instance per process."""

    def __init__(self, new_pump: NewPump = no_pump, notes: Notes = unnoted, poller: Poller | None = None) -> None:
        """`notes` records loop iterations that take too long."""
        self._poller = poller or new_poller()
        self.iterations = Iterations(notes)
        self._woke_at = inf
        self._ready: dict[int, Callable[[int], None]] = {}
        """Callback by descriptor."""
        self.buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._alarms: list[tuple[float, int, ReactorTimer]] = []
        self._alarms_crowded = ALARMS_CROWDED
        self._numbers = itertools.count()
        self._first_deadline = inf
        """Deadline of the first alarm."""
        self._calls: deque[Callable[[], object]] = deque()
        """Calls at the end of this iteration. Trio appends one at a time, from any thread."""
        self._later_calls: deque[Callable[[], object]] = deque()
        """See `call_in_later_iteration`."""
        queues = self._calls, self._later_calls
        self._pump = new_pump(self._poller, self.buffer, self._ready, self.iterations, queues)
        self._wait = self._poll_and_serve if self._pump is None else self._pump.iterate
        self._thread = threading.get_ident()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self._ready[self._wake_receiver.fileno()] = self._on_wake
        self._poller.register(self._wake_receiver.fileno(), READ)
        self._scope: trio.CancelScope | None = None
        self._fatal: BaseException | None = None

    # sockets

    def register(self, fd: int, mask: int, ready: Callable[[int], None]) -> None:
        """Call `ready(mask)`, a method of a `faults.FaultOwner`, whenever the descriptor is ready."""
        self._poller.register(fd, mask)
        self._ready[fd] = ready

    def modify(self, fd: int, mask: int) -> None:
        self._poller.modify(fd, mask)

    def unregister(self, fd: int) -> None:
        self._poller.unregister(fd)
        del self._ready[fd]

    def pass_on(
        self,
        fd: int,
        walk: Any,
        out_fd: int,
        receives: TlsBuffers | None = None,
        sends: TlsBuffers | None = None,
    ) -> Callable[[bytes], None] | None:
        """Let the pump, if there is one, forward bytes from `fd` to `out_fd` without calling the callback of `fd`.

        `walk` is the owner of the callback. `receives`, `sends`: TLS of either socket. None for plain text. Returns a
        function that sends to `out_fd` at the end of the iteration, together with those of other connections.
        """
        if self._pump is None:
            return None
        self._pump.connect(fd, walk, out_fd, receives, sends)
        return partial(self._pump.send_later, fd)

    def stop_passing(self, fd: int) -> None:
        """End what `pass_on` began."""
        if self._pump is not None:
            self._pump.forget(fd)

    def close(self, sock: socket.socket) -> None:
        """Close a socket that is not registered, at the end of this loop iteration."""
        if self._pump is not None:
            self._pump.forget(sock.fileno())
        self._calls.append(sock.close)

    # time (interfaces.Timers)

    now = staticmethod(monotonic)
    """A static method because it is called often."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_at(self, deadline: float, callback: Callable[[], None]) -> ReactorTimer:
        """Call once at or soon after `deadline`. An exception ends the process."""
        alarm = ReactorTimer(callback)
        if len(self._alarms) >= self._alarms_crowded:
            self._remove_cancelled()
        heapq.heappush(self._alarms, (deadline, next(self._numbers), alarm))
        if deadline < self._first_deadline:
            self._first_deadline = deadline
            if self._pump is not None:
                self._pump.interrupt()
        return alarm

    def call_soon(self, owner: faults.FaultOwner, callback: Callable[[], object]) -> None:
        """Call at the end of this loop iteration, when the receive buffer is not in use."""
        self._calls.append(partial(faults.guard, owner, callback))

    def call_on_behalf_of(self, owner: CallbackOwner, callback: Callback) -> None:
        self._calls.append(partial(on_behalf_of, owner, callback))

    def call_in_later_iteration(self, owner: faults.FaultOwner, callback: Callable[[], object]) -> None:
        """Call in a later loop iteration. For work of milliseconds that may arrive in hundreds of pieces together."""
        self._later_calls.append(partial(faults.guard, owner, callback))

    def share_ends(self) -> float:
        """Return when a connection that just received bytes has to yield; see `SHARE_S`.

        Now, while calls wait in `call_in_later_iteration`: many connections must not make one iteration long.
        """
        now = monotonic()
        return now if self._later_calls else now + SHARE_S

    def later_share_ends(self) -> float:
        """Return when a call of `call_in_later_iteration` has to yield to the next one."""
        return monotonic() + SHARE_S

    def call_from_thread(self, callback: Callable[[], object]) -> None:
        """Call at the end of this loop iteration or the next, from any thread. An exception ends the process."""
        self._call_from_any_thread(callback)

    # the loop

    def iterate(self, wait_max_s: float = POLL_MAX_S) -> None:
        """Run one iteration (loop/README.md rule 6). `wait_max_s`: maximum seconds to wait for sockets."""
        self.iterations.doing = None
        now = monotonic()
        if now >= self._first_deadline:
            self._ring_alarms(now)
        if self._calls or self._later_calls:
            wait = 0.0
        else:
            wait = self._first_deadline - now
            if wait > wait_max_s:
                wait = wait_max_s
            elif wait < 0.0:
                wait = 0.0  # epoll interprets a negative time as "without limit"
        self._wait(wait)
        if self._calls:
            self._run_calls()
        if self._later_calls:
            self._run_later_calls()

    def run(self, main: Callable[[], Awaitable[T]]) -> T:
        """Run `main` in Trio, hosted by this loop. Returns its result or raises its exception.

        Raises LocalProtocolError outside the main thread, and the exception that ended the loop's own code.
        """
        if threading.current_thread() is not threading.main_thread():
            raise LocalProtocolError("the reactor runs in the main thread only")
        self._thread = threading.get_ident()
        outcomes: list[outcome.Outcome[T]] = []
        trio.lowlevel.start_guest_run(
            self._hosted,
            main,
            run_sync_soon_threadsafe=self._call_from_any_thread,
            run_sync_soon_not_threadsafe=self._calls.append,
            done_callback=outcomes.append,
            host_uses_signal_set_wakeup_fd=False,
            instruments=[TrioSteps(self.iterations)],
        )
        iterate, PROCESS.scheduler = self.iterate, self._calls.append
        try:
            while not outcomes:
                try:
                    iterate()
                except BaseException as error:
                    self._cancel_guest(error)
                    self._run_calls()  # the call that raised may do so in every iteration from now on
        finally:
            PROCESS.scheduler = None
        if self._fatal is not None:
            raise self._fatal
        return outcomes[0].unwrap()

    def shut(self) -> None:
        """Close the loop after its last iteration."""
        self._run_calls()
        self.iterations.end()
        self._poller.close()
        self._wake_receiver.close()
        self._wake_sender.close()

    def failed(self, error: Exception) -> None:
        """End the loop: it cannot be woken any longer, because the socket for that has failed."""
        self._cancel_guest(error)

    def _poll_and_serve(self, wait_s: float) -> None:
        worked = monotonic() - self._woke_at
        if worked > NOTED_S:
            self.iterations.ended(worked)
        events = self._poller.poll(wait_s, BATCH)
        self._woke_at = monotonic()
        for event in events:
            callback, began = self._ready.get(event[0]), monotonic()
            serve((event,), self._ready)
            self._timed(callback, began)

    async def _hosted(self, main: Callable[[], Awaitable[T]]) -> T:
        with trio.CancelScope() as self._scope:
            if self._fatal is not None:
                self._scope.cancel()
            return await main()
        raise LocalProtocolError("the loop failed")  # cancelled: run() raises the cause

    def _cancel_guest(self, error: BaseException) -> None:
        if self._fatal is None:
            self._fatal = error
        if self._scope is not None:
            self._scope.cancel()

    def _call_from_any_thread(self, callback: Callable[[], object]) -> None:
        self._calls.append(callback)
        if threading.get_ident() != self._thread:
            try:
                self._wake_sender.send(b"!")
            except BlockingIOError:
                pass  # earlier bytes wake the loop
            except OSError:
                pass  # the loop has ended

    def _run_calls(self) -> None:
        calls, began = self._calls, monotonic()
        for _ in range(len(calls)):
            call = calls.popleft()
            call()
            began = self._timed(call, began)

    def _run_later_calls(self) -> None:
        calls, now = self._later_calls, monotonic()
        end = now + SPREAD_S
        while calls and now <= end:
            callback = calls.popleft()
            callback()
            now = self._timed(callback, now)

    def _timed(self, callback: object, began: float) -> float:
        """Report a slow callback. Returns the current time."""
        now = monotonic()
        if now - began > NOTED_S:
            self.iterations.took(callback, now - began)
        return now

    def _on_wake(self, _mask: int) -> None:
        with suppress(BlockingIOError):
            self._wake_receiver.recv(4096)

    def _remove_cancelled(self) -> None:
        self._alarms[:] = [entry for entry in self._alarms if entry[2].callback is not None]
        heapq.heapify(self._alarms)
        self._alarms_crowded = max(2 * len(self._alarms), ALARMS_CROWDED)

    def _ring_alarms(self, now: float) -> None:
        alarms = self._alarms
        while alarms and alarms[0][0] <= now:
            alarm = heapq.heappop(alarms)[2]
            callback, alarm.callback = alarm.callback, None
            if callback is not None:
                began = monotonic()
                callback()
                self._timed(callback, began)
        self._first_deadline = alarms[0][0] if alarms else inf
