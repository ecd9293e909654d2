"""The one loop: it waits for every forwarded socket and hosts Trio as its guest.

Why this form (measured with tests/bench against a real broker 4.3.0, throw-away relays with frame tracking in both
directions, CPython 3.11, Trio 0.35; proxy CPU as a multiple of the C relay, all pinned to one core of a busy two-core
machine, medians of 5 interleaved rounds):

    form                                       small  1000 round robin  1000 busy  64 KiB produce  1 MiB fetch
    bare loop, no Trio at all                   1.66        1.61          1.49          2.21           1.33
    Trio as guest of the loop (this)            1.65        1.77          1.46          2.26           1.30
    the loop in a thread beside Trio            1.85        1.58          1.39          2.24           1.32
    a Trio task that waits on the epoll         3.73        3.10          1.56          4.09           1.44

Since then what passes goes through a pump in C (`forwarding.pump`), which takes nearly all of it away; the loop with
its guest around it stayed. The task pays one trip through Trio's scheduler per wake-up, as much as two forwarded
requests. Thread and guest cost the same within the noise while Trio is idle, but a thread would contend for the
interpreter lock as soon as Trio has work, and every call from the loop into a machine would need a lock or a hop. As
guest, Trio's tasks and the loop's callbacks run in one thread: between two awaits nobody else runs.

The price: while no Trio task is runnable Trio waits for its own sockets in a worker thread, so a wake-up of a Trio task
by its own I/O costs two thread switches. What is frequent is therefore a plain call from the loop into a machine; Trio
tasks keep what is rare or has many steps (dialling, admin, the proxy's own client).

Rules. The loop runs in the main thread. Signals are received by a Trio task. Only Trio's `done_callback` ends the loop.
What a socket's callback raises closes what owns the socket (`faults`); anything else cancels Trio's main task, and the
loop runs on until Trio is done. A turn ends with the calls that wait then, Trio's among them (one of its own at most,
and one for each worker thread that came back); what these bring about waits for the next turn. What takes long and may
come in hundreds at once is spread over turns. Descriptors are closed
at the end of a turn, so that an event of this turn never reaches a new socket with an old number.
"""

from __future__ import annotations

import heapq
import itertools
import socket
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from time import monotonic
from typing import Any, TypeVar

import outcome
import trio

from proxy.loop import faults
from proxy.loop.faults import serve
from proxy.loop.interfaces import Notes, Pump
from proxy.loop.polling import BATCH, READ, Poller, new_poller
from proxy.loop.promise import PROCESS, Callback, CallbackOwner, on_behalf_of
from proxy.loop.turns import NOTED_S, TrioSteps, Turns, unnoted
from proxy.wire.errors import LocalProtocolError

T = TypeVar("T")

NewPump = Callable[[Poller, memoryview, Mapping[int, Callable[[int], None]], Turns], Pump | None]
"""Makes a pump over the poller, the receive buffer and the callbacks by descriptor; None where there can be none."""

RECEIVE_BYTES = 256 * 1024
"""The one receive buffer, shared by all sockets: fewer, larger reads of large frames, and no memory per connection."""

POLL_MAX_S = 60.0

SPREAD_S = 0.005
"""In one turn so long at most is worked off of what is spread over turns; one call at least."""

ALARMS_CROWDED = 1024
"""From so many alarms on, and again whenever they have doubled, the cancelled ones are taken out: clients choose how
far ahead theirs lie (days, if they like), and nearly all are cancelled within milliseconds."""


class ReactorTimer:
    """One planned call (interfaces.Timer)."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """See interfaces.Timer."""
        self.callback = None


def no_pump(*_: object) -> None:
    """The loop polls and calls back in Python (`faults.serve`)."""


class Reactor:
    """Sockets, timers and the guest. One per process."""

    def __init__(self, new_pump: NewPump = no_pump, notes: Notes = unnoted, poller: Poller | None = None) -> None:
        """`notes` is told of turns that take too long."""
        self._poller = poller or new_poller()
        self.turns = Turns(notes)
        """How long turns take."""
        self._woke = inf
        """When the last wait ended, where there is no pump."""
        self._ready: dict[int, Callable[[int], None]] = {}
        self.buffer = memoryview(bytearray(RECEIVE_BYTES))
        """Whoever reads a socket reads into this; its content is good until the callback returns."""
        self._pump = new_pump(self._poller, self.buffer, self._ready, self.turns)
        self._wait = self._poll_and_serve if self._pump is None else self._pump.turn
        self._alarms: list[tuple[float, int, ReactorTimer]] = []
        self._alarms_crowded = ALARMS_CROWDED
        self._numbers = itertools.count()
        self._due = inf
        """When the first alarm rings."""
        self._chores: deque[Callable[[], object]] = deque()
        """What is done at the end of a turn. Trio appends one call at a time, from any thread."""
        self._spread: deque[Callable[[], object]] = deque()
        """What is done a little in each turn."""
        self._thread = threading.get_ident()
        self._bell, self._bell_rope = socket.socketpair()
        self._bell.setblocking(False)
        self._bell_rope.setblocking(False)
        self._ready[self._bell.fileno()] = self._rung
        self._poller.register(self._bell.fileno(), READ)
        self._scope: trio.CancelScope | None = None
        self._fatal: BaseException | None = None

    # sockets

    def register(self, fd: int, mask: int, ready: Callable[[int], None]) -> None:
        """Call `ready(mask)`, a method of a `faults.FaultOwner`, whenever the descriptor is ready."""
        self._poller.register(fd, mask)
        self._ready[fd] = ready

    def modify(self, fd: int, mask: int) -> None:
        """Wait for something else on the descriptor."""
        self._poller.modify(fd, mask)

    def unregister(self, fd: int) -> None:
        """Wait for nothing on it any more."""
        self._poller.unregister(fd)
        del self._ready[fd]

    def pass_on(self, fd: int, walk: Any, out_fd: int) -> None:
        """From now on what comes from `fd` may pass to `out_fd` without a call of its callback, where there is a pump.

        Both are plain sockets; `walk`, whose class the pump knows, is the owner of the callback of `fd`.
        """
        if self._pump is not None:
            self._pump.connect(fd, walk, out_fd)

    def close(self, sock: socket.socket) -> None:
        """Close a socket that is not registered, at the end of this turn."""
        if self._pump is not None:
            self._pump.forget(sock.fileno())
        self._chores.append(sock.close)

    # time (interfaces.Timers)

    now = staticmethod(monotonic)
    """Monotonic seconds; asked often, so without a call of ours in between."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def call_at(self, deadline: float, callback: Callable[[], None]) -> ReactorTimer:
        """Call once at or soon after `deadline` (as `now`). What it raises ends the process."""
        alarm = ReactorTimer(callback)
        if len(self._alarms) >= self._alarms_crowded:
            self._forget_cancelled()
        heapq.heappush(self._alarms, (deadline, next(self._numbers), alarm))
        self._due = min(self._due, deadline)
        return alarm

    def call_soon(self, owner: faults.FaultOwner, callback: Callable[[], object]) -> None:
        """Call at the end of this turn, when nobody uses the receive buffer."""
        self._chores.append(partial(faults.guard, owner, callback))

    def call_on_behalf_of(self, owner: CallbackOwner, callback: Callback) -> None:
        """The same, for whoever owns callbacks of promises (see CallbackOwner.call_soon)."""
        self._chores.append(partial(on_behalf_of, owner, callback))

    def call_in_turn(self, owner: faults.FaultOwner, callback: Callable[[], object]) -> None:
        """Call in one of the next turns: what takes milliseconds and may come in hundreds at once (TLS handshakes).

        Those that were served before are served in between.
        """
        self._spread.append(partial(faults.guard, owner, callback))

    def call_from_thread(self, callback: Callable[[], object]) -> None:
        """Call at the end of this turn or of the next; may be called by any thread. What it raises ends the process."""
        self._call_from_any_thread(callback)

    # the loop

    def turn(self, wait_max_s: float = POLL_MAX_S) -> None:
        """One turn: ring alarms, wait for sockets, call back, then chores: own calls, Trio's, sockets to close."""
        self.turns.doing = None
        now = monotonic()
        if now >= self._due:
            self._ring_alarms(now)
        if self._chores or self._spread:
            wait = 0.0
        else:
            wait = self._due - now
            if wait > wait_max_s:
                wait = wait_max_s
            elif wait < 0.0:
                wait = 0.0  # epoll takes a negative time for "without end"
        self._wait(wait)
        if self._chores:
            self._do_chores()
        if self._spread:
            self._do_spread()

    def run(self, main: Callable[[], Awaitable[T]]) -> T:
        """Run `main` in Trio, hosted by this loop, until it returns; give its result or raise what it raised.

        Raises:
            LocalProtocolError: not called in the main thread.
            BaseException: whatever ended the loop's own code; Trio was cancelled and has ended then.
        """
        if threading.current_thread() is not threading.main_thread():
            raise LocalProtocolError("the reactor runs in the main thread only")
        self._thread = threading.get_ident()
        outcomes: list[outcome.Outcome[T]] = []
        trio.lowlevel.start_guest_run(
            self._hosted,
            main,
            run_sync_soon_threadsafe=self._call_from_any_thread,
            run_sync_soon_not_threadsafe=self._chores.append,
            done_callback=outcomes.append,
            host_uses_signal_set_wakeup_fd=False,
            instruments=[TrioSteps(self.turns)],
        )
        turn, PROCESS.scheduler = self.turn, self._chores.append
        try:
            while not outcomes:
                try:
                    turn()
                except BaseException as error:
                    self._cancel_guest(error)
                    self._do_chores()  # what raised may do so in every turn from now on
        finally:
            PROCESS.scheduler = None
        if self._fatal is not None:
            raise self._fatal
        return outcomes[0].unwrap()

    def shut(self) -> None:
        """Give back what the loop itself holds, after the last turn."""
        self._do_chores()
        self.turns.end()
        self._poller.close()
        self._bell.close()
        self._bell_rope.close()

    def failed(self, error: Exception) -> None:
        """The loop's own callback (the bell) failed: nothing can be done without it."""
        self._cancel_guest(error)

    def _poll_and_serve(self, wait_s: float) -> None:
        worked = monotonic() - self._woke
        if worked > NOTED_S:
            self.turns.ended(worked)
        events = self._poller.poll(wait_s, BATCH)
        self._woke = monotonic()
        for event in events:
            callback, began = self._ready.get(event[0]), monotonic()
            serve((event,), self._ready)
            self._timed(callback, began)

    async def _hosted(self, main: Callable[[], Awaitable[T]]) -> T:
        with trio.CancelScope() as self._scope:
            if self._fatal is not None:
                self._scope.cancel()
            return await main()
        raise LocalProtocolError("the loop failed")  # cancelled: run() raises what did it

    def _cancel_guest(self, error: BaseException) -> None:
        if self._fatal is None:
            self._fatal = error
        if self._scope is not None:
            self._scope.cancel()

    def _call_from_any_thread(self, callback: Callable[[], object]) -> None:
        self._chores.append(callback)
        if threading.get_ident() != self._thread:
            try:
                self._bell_rope.send(b"!")
            except BlockingIOError:
                pass  # it rings already
            except OSError:
                pass  # the loop has ended

    def _do_chores(self) -> None:
        """Those there are now; what they bring about is done in the next turn."""
        chores, began = self._chores, monotonic()
        for _ in range(len(chores)):
            chore = chores.popleft()
            chore()
            began = self._timed(chore, began)

    def _do_spread(self) -> None:
        spread, now = self._spread, monotonic()
        end = now + SPREAD_S
        while spread and now <= end:
            callback = spread.popleft()
            callback()
            now = self._timed(callback, now)

    def _timed(self, callback: object, began: float) -> float:
        """A callback was called at `began` and is over; now."""
        now = monotonic()
        if now - began > NOTED_S:
            self.turns.took(callback, now - began)
        return now

    def _rung(self, _mask: int) -> None:
        with suppress(BlockingIOError):
            self._bell.recv(4096)

    def _forget_cancelled(self) -> None:
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
        self._due = alarms[0][0] if alarms else inf
