"""Groups of commands that are built when one of their commands, or the help of all, is used.

How it works: typer builds all flags of all commands of an app, with a validator each, before it reads the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup


class LazyGroups(TyperGroup):
    """The commands of an app, followed by the groups of `LOADERS`, which a subclass sets."""

    LOADERS: ClassVar[Mapping[str, Callable[[], typer.Typer]]] = {}
    """Name of the group -> function that imports and returns its app."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the help."""
        return [*(name for name in super().list_commands(ctx) if name not in self.LOADERS), *self.LOADERS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command or group. Return None for an unknown name, with all groups built for suggestions."""
        if cmd_name not in self.commands:
            for name in (cmd_name,) if cmd_name in self.LOADERS else self.LOADERS:
                self._build(name)
        return super().get_command(ctx, cmd_name)

    def _build(self, name: str) -> None:
        group = typer.main.get_command(self.LOADERS[name]())
        group.name = name
        self.add_command(group)
