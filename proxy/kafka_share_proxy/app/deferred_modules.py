"""Modules that libraries import and `serve` never uses, loaded at their first use: an idle proxy should be small."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from kafka_share_proxy.app import installed

Functions = Mapping[str, Callable[..., Any] | None]
"""Functions that a library imports by name, and what replaces them. None: they load their module when called."""

TYPER: Mapping[str, Functions] = {"difflib": {"get_close_matches": None}}
"""0.25 MiB, for mistakes on the command line."""
PYDANTIC: Mapping[str, Functions] = {"importlib.metadata": {"version": None, "entry_points": None}}
"""1.3 MiB, for plugins."""
STRUCTLOG: Mapping[str, Functions] = {"asyncio": {}}
"""1.9 MiB, for loggers of programs on asyncio."""
CRC32C: Mapping[str, Functions] = {"argparse": {}, "importlib.metadata": {"version": installed.version}}
"""0.1 MiB, for the command of that library, and 1.3 MiB for its version."""


@contextmanager
def deferred(modules: Mapping[str, Functions]) -> Iterator[None]:
    """Let libraries that are imported meanwhile get stand-ins of modules, which load them at their first use.

    Modules that are loaded already stay.
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

    def __init__(self, name: str, functions: Functions) -> None:
        super().__init__(name)
        for function, replacement in functions.items():
            setattr(self, function, replacement or self._loading(function))

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
