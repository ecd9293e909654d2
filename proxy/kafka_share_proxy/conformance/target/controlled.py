"""A cluster in the loop of a test, which does every action by its name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kafka_share_proxy.conformance.target.server import TargetOptions, TargetServer, serving


class ControlledTarget(TargetServer):
    """A cluster with the actions of the HTTP control."""

    async def do(self, path: str, /, **values: Any) -> dict[str, Any]:
        """Do an action of the HTTP control, such as `do("leaders/move", topic="orders", node=2)`. Return its details.

        Raises actions.ActionError.
        """
        from kafka_share_proxy.conformance.target.actions import Action  # pydantic is slow to import

        return await Action(path, values).apply(self)


@asynccontextmanager
async def open_controlled_target(options: TargetOptions | None = None) -> AsyncIterator[ControlledTarget]:
    """Serve a cluster inside the block. Raises OSError if a port cannot be opened, ValueError for wrong options."""
    server = ControlledTarget(options or TargetOptions())
    async with serving(server):
        yield server
