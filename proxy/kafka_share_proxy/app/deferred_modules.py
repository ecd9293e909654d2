"""Modules that libraries import and `serve` never uses, loaded at their first use: an idle proxy should be small."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

TYPER = {"difflib": ("get_close_matches",)}
"""0.25 MiB, for mistakes on the command line."""
TRIO: dict[str, tuple[str, ...]] = {"idna": ()}
"""0.15 MiB, for host names that are not ASCII."""
STRUCTLOG: dict[str, tuple[str, ...]] = {"asyncio": ()}
"""1 MiB, for loggers of programs on asyncio."""
CRC32C: dict[str, tuple[str, ...]] = {"argparse": ()}
"""0.1 MiB, for the command of that library."""


@contextmanager
def deferred(modules: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """Let libraries that are imported meanwhile get stand-ins of modules, which load them at their first use.

    `modules`: name -> functions that the library imports by name. Modules that are loaded already stay.
    """
    stand_ins = {name: _StandIn(name, functions) for name, functions in modules.items() if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, stand_in in stand_ins.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]


class _StandIn(ModuleType):
    """Module that gets its attributes from the real one."""

    def __init__(self, name: str, functions: Sequence[str]) -> None:
        super().__init__(name)
        for function in functions:
            setattr(self, function, self._loading(function))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system looks for some
            raise AttributeError(name)
        return getattr(self._loaded(), name)

    def _loaded(self) -> ModuleType:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return import_module(self.__name__)

    def _loading(self, function: str) -> Callable[..., Any]:
        return lambda *arguments, **options: getattr(self._loaded(), function)(*arguments, **options)
