"""Values that features store for a client connection, each in a typed slot that the feature declares and owns.

`RIGHTS = ConnectionSlot(Rights)` declares a slot. `RIGHTS.of(connection)` is its value, until `forget`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from kafka_share_proxy.brokers.interfaces import Connection

T = TypeVar("T")

SlotValues = dict["_Slot", Any]


class _Slot:
    __slots__ = ()

    def forget(self, connection: Connection) -> None:
        connection.slot_values.pop(self, None)


class ConnectionSlot(_Slot, Generic[T]):
    """Slot whose value is created at the first use."""

    __slots__ = ("_factory",)

    def __init__(self, factory: Callable[[], T]) -> None:
        self._factory = factory

    def of(self, connection: Connection) -> T:
        values = connection.slot_values
        try:
            value: T = values[self]
        except KeyError:
            value = values[self] = self._factory()
        return value


class OptionalSlot(_Slot, Generic[T]):
    """Slot whose value exists only between `put` and `forget`."""

    __slots__ = ()

    def of(self, connection: Connection) -> T | None:
        value: T | None = connection.slot_values.get(self)
        return value

    def put(self, connection: Connection, value: T) -> None:
        connection.slot_values[self] = value
