"""What features remember of one client connection: each in a typed slot that the feature declares and owns.

A slot is declared once, in the module of its feature: `RIGHTS = ConnectionSlot(Rights)`. `RIGHTS.of(connection)` is
the value of that connection, made at the first use. Values are forgotten with their connection, or by `forget`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")

SlotValues = dict["_Slot", Any]
"""The values of one connection by their slots; only slots read and write it."""


class HasSlots(Protocol):
    """A connection that features may remember something of."""

    @property
    def slot_values(self) -> SlotValues:
        """Empty at first; gone with the connection."""


class _Slot:
    """What all slots have in common: the slot itself is the key of its value."""

    __slots__ = ()

    def forget(self, connection: HasSlots) -> None:
        """Remember nothing any more; harmless when nothing was remembered."""
        connection.slot_values.pop(self, None)


class ConnectionSlot(_Slot, Generic[T]):
    """A value that is made when it is first asked for."""

    __slots__ = ("_factory",)

    def __init__(self, factory: Callable[[], T]) -> None:
        self._factory = factory

    def of(self, connection: HasSlots) -> T:
        """The value of this connection."""
        values = connection.slot_values
        try:
            value: T = values[self]
        except KeyError:
            value = values[self] = self._factory()
        return value


class OptionalSlot(_Slot, Generic[T]):
    """A value that is there only between `put` and `forget`."""

    __slots__ = ()

    def of(self, connection: HasSlots) -> T | None:
        """The value of this connection; None = nothing is remembered."""
        value: T | None = connection.slot_values.get(self)
        return value

    def put(self, connection: HasSlots, value: T) -> None:
        """Remember this value in place of any other."""
        connection.slot_values[self] = value
