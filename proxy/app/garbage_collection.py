"""Collections of garbage that do not walk through all that lives.

Python looks for circles of references among all objects that are old, and nobody is served meanwhile: 280 ms with
10,000 share groups and 50,000 share partitions. What survived a collection stays, nearly all of it, so it is frozen:
the next collection looks at what is new only. Something frozen that later becomes a circle nobody needs would stay as
well, so once as much is frozen again as was found alive last, everything is looked through: garbage never takes more
than what lives, and full walks become rarer the more there is.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Mapping

OLDEST = 2
"""The generation whose collection walks through everything that is not frozen."""
GROWTH = 2


class Garbage:
    """Freezes what survives. One per process."""

    def __init__(self, call_soon: Callable[[Callable[[], object]], None]) -> None:
        """`call_soon`: calls at the end of the turn; collections begin anywhere."""
        self._call_soon = call_soon
        self._alive = 0
        """Objects that the last full walk found alive."""
        self._planned = False

    def begin(self) -> None:
        """Everything there is now stays; what the start needed once goes back to the system; go on like that."""
        self._walk()
        _give_back()
        gc.callbacks.append(self._collected)

    def end(self) -> None:
        """Leave collections alone again; harmless without `begin`."""
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "stop" and info["generation"] == OLDEST and not self._planned:
            self._planned = True
            self._call_soon(self._keep)

    def _keep(self) -> None:
        gc.freeze()
        if gc.get_freeze_count() > GROWTH * self._alive:
            gc.unfreeze()
            self._walk()
        self._planned = False

    def _walk(self) -> None:
        gc.collect()
        gc.freeze()
        self._alive = gc.get_freeze_count()


def _give_back() -> None:
    """Free memory of the C library to the system: 1.3 MiB after a start. Nothing where the C library is not glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
