"""FreezingCollector collection that does not walk through all live objects while clients wait.

Rule: loop/README.md 16. A cycle of frozen objects that becomes garbage stays in memory until a full walk. Connections
leave no cycles (`forwarding.connection`, `loop.transports`).

Counting the frozen objects visits every one of them too: 14 ms for 450,000 (18,777 share groups), and more in a heap
that is not in the processor's caches. They are therefore counted only when the allocated blocks of memory have grown by
about as many as are missing. Python adds up the blocks from the counts of its pools in 0.2 ms.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Mapping
from time import monotonic

ARENA_MAX = -8
"""M_ARENA_MAX of mallopt (malloc.h)."""
MIDDLE, OLDEST = 1, 2
"""Generations of Python's collector. A collection of the oldest one visits every object that is not frozen."""
PORTION = 4
"""Collections of the middle generation, each after 7,000 new objects, after which survivors are frozen."""
GROWTH, GROWTH_MAX = 2, 4
"""Frozen objects, relative to those alive after the last full walk, at which the next one is due, or is forced."""
WALK_S = 0.02
"""Seconds that a full walk may take while clients are connected."""
COUNTED_AGAIN = 0.25
"""Least growth in blocks, relative to the objects alive after the last full walk, between two counts."""


class FreezingCollector:
    """Freezes the survivors of collections, so that later ones do not visit them. One per process."""

    def __init__(
        self, call_soon: Callable[[Callable[[], object]], None], is_idle: Callable[[], bool] = lambda: True
    ) -> None:
        """`call_soon` calls at the end of the loop iteration, as collections begin anywhere. `is_idle` returns True
        without clients.
        """
        self._call_soon = call_soon
        self._is_idle = is_idle
        self._alive = 0
        """Objects that the last full walk found alive."""
        self._walk_s = 0.0
        """Seconds of the last full walk."""
        self._frozen = 0
        """Frozen objects when they were last counted."""
        self._blocks = 0
        """Allocated blocks at that time."""
        self._portions = 0
        self._planned = False
        self._began = 0.0
        self._longest_s = 0.0

    def begin(self, walked_s: float = 0.0) -> None:
        """Freeze all present objects, and return memory that only the start used. `walked_s`: see `freeze`."""
        self._walk_s = walked_s + freeze()
        self._alive = self._count()
        _trim_heap()
        gc.callbacks.append(self._collected)

    def release_memory(self) -> None:
        """Return memory that was used since `begin`."""
        gc.collect()
        gc.freeze()
        self._count()
        _trim_heap()

    def end(self) -> None:
        """Restore normal collections. Harmless without `begin`."""
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def take_longest(self) -> float:
        """Return the seconds of the longest collection since the previous call."""
        longest, self._longest_s = self._longest_s, 0.0
        return longest

    def _collected(self, phase: str, info: Mapping[str, int]) -> None:
        now = monotonic()
        if phase == "start":
            self._began = now
            return
        self._longest_s = max(self._longest_s, now - self._began)
        generation = info["generation"]
        self._portions += generation == MIDDLE
        if (generation == OLDEST or self._portions >= PORTION) and not self._planned:
            self._planned = True
            self._call_soon(self._freeze_survivors)

    def _freeze_survivors(self) -> None:
        if self._portions >= PORTION:
            gc.collect()
        gc.freeze()
        if self._may_have_grown():
            frozen = self._count()
            if frozen > GROWTH * self._alive and self._may_walk(frozen):
                self._walk()
        self._portions = 0
        self._planned = False

    def _may_have_grown(self) -> bool:
        """True if half of the missing objects were allocated: memory that is not frozen may have been released."""
        bound = GROWTH if self._may_walk(GROWTH * self._alive) else GROWTH_MAX
        missing = max((bound * self._alive - self._frozen) / 2, COUNTED_AGAIN * self._alive)
        blocks = sys.getallocatedblocks()  # 0 if Python does not count them, with PYTHONMALLOC=malloc
        return not blocks or blocks - self._blocks >= missing

    def _may_walk(self, frozen: int) -> bool:
        expected_s = self._walk_s * frozen / max(self._alive, 1)
        return expected_s < WALK_S or frozen > GROWTH_MAX * self._alive or self._is_idle()

    def _count(self) -> int:
        self._frozen, self._blocks = gc.get_freeze_count(), sys.getallocatedblocks()
        return self._frozen

    def _walk(self) -> None:
        gc.unfreeze()
        self._walk_s = freeze()
        self._alive = self._count()


def freeze() -> float:
    """Collect what is not frozen yet, and freeze the rest. Return the seconds of the walk."""
    began = monotonic()
    gc.collect()
    seconds = monotonic() - began
    gc.freeze()
    return seconds


def share_one_arena() -> None:
    """Make all threads allocate from one arena of the C library: a second one costs 0.4 MiB.

    Must be called before the first thread starts.
    """
    configure = getattr(ctypes.CDLL(None), "mallopt", None)
    if configure is not None:
        configure(ARENA_MAX, 1)


def _trim_heap() -> None:
    """Return unused memory of the C library: 1.3 MiB after a start. Does nothing without glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
