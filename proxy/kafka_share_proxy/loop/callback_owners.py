"""Owners of the callbacks of promises (loop/README.md rule 9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Callback = Callable[[], object]


class CallbackOwner(Protocol):
    """Owner of callbacks, compared by identity."""

    def call_soon(self, callback: Callback) -> None:
        """Call later by `on_behalf_of`, in the order of these calls, when no other owner's code is on the stack."""

    def failed(self, error: Exception) -> None:
        """End this owner, and no other: one of its callbacks has raised the error."""
