"""How long the turns of the loop take, and what the long ones did.

A turn is the work between two waits for sockets: the callbacks of ready sockets, the calls that wait for the end of the
turn, Trio's among them, and the alarms due before the next wait. While it lasts nobody else is served. The time until
the interpreter's lock is had again after a wait counts too: a thread that keeps the lock holds up clients as well.

The loop reads one clock more per wait for this. It tells here only what took longer than `NOTED_S`, so `Turns` itself
costs nothing while turns are short.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import trio

from proxy.loop import faults
from proxy.loop.interfaces import Described, Notes, Request
from proxy.loop.promise import on_behalf_of
from proxy.wire import registry

NOTED_S = 0.005
"""Calls and turns that take longer are told to `Turns`; the same figure stands in _pump.c."""
LONG_S = 0.02
"""No turn should take longer, whatever clients send."""
LOGGED_S = 0.1
"""A turn that takes longer is logged with what it did."""
COUNTED_S = (LONG_S, LOGGED_S)
TURN_LONG = "turn-long"


def unnoted(_event: str, /, **_context: Any) -> None:
    """For loops that nobody watches."""


class _Call(NamedTuple):
    """The longest call of a turn."""

    seconds: float = 0.0
    words: str = ""
    about: Mapping[str, object] = {}


_NONE = _Call()


class Turns:
    """How long the turns of one reactor take."""

    def __init__(self, notes: Notes = unnoted) -> None:
        self._notes = notes
        self._longest_s = 0.0
        self._over = dict.fromkeys(COUNTED_S, 0)
        self._slowest = _NONE
        self._collection_began = 0.0
        self._counts = False
        self.doing: tuple[Described | None, Request] | None = None
        """The connection whose request or answer is being looked into (where that is at hand), and the request; set on
        the slow paths, and taken back at the next turn."""

    def took(self, whose: object, seconds: float) -> None:
        """A call of this turn took longer than NOTED_S; `whose` is the callback or a word for it.

        Called right behind it, while its owner still knows. What was noted inside of a call (a step of a Trio task, a
        collection of garbage) tells more than the call around it.
        """
        if seconds > 2 * self._slowest.seconds:
            words, about = _described(whose)
            connection, request = self.doing or (None, None)
            its = about if connection is None else connection.describe()
            if request is not None and (not about or about == its):
                words = f"{registry.API_KEYS.get(request.key, request.key)} v{request.version}, {words}"
                about = its
            self._slowest = _Call(seconds, words, about)

    def ended(self, seconds: float) -> None:
        """A turn that took longer than NOTED_S is over."""
        slowest, self._slowest = self._slowest, _NONE
        if not self._counts:
            return
        self._longest_s = max(self._longest_s, seconds)
        for bound in COUNTED_S:
            self._over[bound] += seconds > bound
        if seconds > LOGGED_S:
            context: dict[str, Any] = {
                "took_s": round(seconds, 3),
                "call_s": round(slowest.seconds, 3),
                **slowest.about,
            }
            self._notes(TURN_LONG, reason=slowest.words or "many short calls", **context)

    def over(self) -> Mapping[str, float]:
        """How many turns took longer, by seconds."""
        return {f"{bound:g}": count for bound, count in self._over.items()}

    def take_longest(self) -> float:
        """Seconds of the longest turn since this was asked last; 0 when none was longer than NOTED_S."""
        longest, self._longest_s = self._longest_s, 0.0
        return longest

    def begin(self) -> None:
        """Clients are let in: from now on turns count, and collections of garbage are told apart."""
        self._counts = True
        gc.callbacks.append(self._collecting)

    def end(self) -> None:
        """Nobody is served any more; harmless without `begin`."""
        if self._counts:
            self._counts = False
            gc.callbacks.remove(self._collecting)

    def _collecting(self, phase: str, info: Mapping[str, int]) -> None:
        now = monotonic()
        if phase == "start":
            self._collection_began = now
        elif now - self._collection_began > NOTED_S:
            self.took(f"collection of garbage, generation {info['generation']}", now - self._collection_began)


class TrioSteps(trio.abc.Instrument):
    """Tells which task of Trio took long."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._began = 0.0

    def before_task_step(self, _task: trio.lowlevel.Task) -> None:
        """See trio.abc.Instrument."""
        self._began = monotonic()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """See trio.abc.Instrument."""
        seconds = monotonic() - self._began
        if seconds > NOTED_S:
            self._turns.took(f"task {task.name}", seconds)


def _described(whose: object) -> tuple[str, Mapping[str, object]]:
    """What a callback is called, and what its owner says of itself."""
    if isinstance(whose, str):
        return whose, {}
    if isinstance(whose, partial):
        inner = whose.args[-1] if whose.func in (faults.guard, on_behalf_of) else whose.func
        words, about = _described(inner)
        return words, about or _of_owner(whose.args[0] if whose.args else None)
    owner = getattr(whose, "__self__", whose)
    name = str(getattr(whose, "__qualname__", type(whose).__qualname__))
    if owner is not whose:
        name = f"{type(owner).__qualname__}.{name.rpartition('.')[2]}"
    return name, _of_owner(owner)


def _of_owner(owner: object) -> Mapping[str, object]:
    describe: Callable[[], Mapping[str, object]] | None = getattr(owner, "describe", None)
    return {} if describe is None else describe()
