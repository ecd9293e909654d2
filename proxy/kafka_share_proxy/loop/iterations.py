"""Durations of the loop's iterations, and the calls that made the long ones long.

An iteration is the work between two waits for sockets. Waiting for the interpreter lock after a wait counts too: a
thread that holds the lock delays clients as well. Only calls and iterations longer than `NOTED_S` are reported, so
`Iterations` costs nothing while iterations are short.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import trio

from kafka_share_proxy.loop import faults
from kafka_share_proxy.loop.interfaces import Described, Notes, Request
from kafka_share_proxy.loop.promise import on_behalf_of
from kafka_share_proxy.wire.definitions import registry

NOTED_S = 0.005
"""Seconds beyond which calls and iterations are reported to `Iterations`. _pump.c has the same number."""
LONG_S = 0.02
"""Maximum seconds that an iteration should take."""
LOGGED_S = 0.1
"""Seconds beyond which an iteration is logged with its longest call."""
COUNTED_S = (LONG_S, LOGGED_S)
ITERATION_LONG = "turn-long"


def unnoted(_event: str, /, **_context: Any) -> None:
    """Discard the event, for loops without monitoring."""


class _Call(NamedTuple):
    """Longest call of an iteration."""

    seconds: float = 0.0
    words: str = ""
    about: Mapping[str, object] = {}


_NONE = _Call()


class Iterations:
    """Durations of the iterations of one reactor."""

    def __init__(self, notes: Notes = unnoted) -> None:
        self._notes = notes
        self._longest_s = 0.0
        self._over = dict.fromkeys(COUNTED_S, 0)
        self._slowest = _NONE
        self._collection_began = 0.0
        self._counts = False
        self.doing: tuple[Described | None, Request] | None = None
        """Set on the slow paths, reset in the next iteration."""

    def took(self, whose: object, seconds: float) -> None:
        """Record a call of this iteration that took longer than NOTED_S. `whose` is the callback or a word for it.

        A call noted inside another one (a garbage collection) explains more than the call around it.
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
            self._notes(ITERATION_LONG, reason=slowest.words or "many short calls", **context)

    def over(self) -> Mapping[str, float]:
        """Return the number of longer iterations, by seconds."""
        return {f"{bound:g}": count for bound, count in self._over.items()}

    def take_longest(self) -> float:
        """Return the seconds of the longest iteration since the previous call."""
        longest, self._longest_s = self._longest_s, 0.0
        return longest

    def begin(self) -> None:
        """Start to count. Called when clients are admitted."""
        self._counts = True
        gc.callbacks.append(self._collecting)

    def end(self) -> None:
        """Stop counting iterations. Does nothing without `begin`."""
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
    """Instrument that reports slow steps of Trio tasks."""

    def __init__(self, iterations: Iterations) -> None:
        self._iterations = iterations
        self._began = 0.0

    def before_task_step(self, _task: trio.lowlevel.Task) -> None:
        self._began = monotonic()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        seconds = monotonic() - self._began
        if seconds > NOTED_S:
            self._iterations.took(f"task {task.name}", seconds)


def _described(whose: object) -> tuple[str, Mapping[str, object]]:
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
