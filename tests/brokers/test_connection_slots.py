"""Values that features store with a connection: typed, created at first use, separate for each connection, dropped on
demand.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kafka_share_proxy.brokers.connection_slots import ConnectionSlot, OptionalSlot, SlotValues

CHECKOUT = Path(__file__).resolve().parents[2]


class Connection:
    """Connection with the methods that a slot needs."""

    def __init__(self) -> None:
        self.slot_values: SlotValues = {}


def test_a_value_is_made_once_for_each_connection() -> None:
    """Two slots with equal factories are two memories, and so are two connections."""
    names, other = ConnectionSlot[list[str]](list), ConnectionSlot[list[str]](list)
    first, second = Connection(), Connection()
    names.of(first).append("a")
    assert (names.of(first), names.of(second), other.of(first)) == (["a"], [], [])
    names.forget(first)
    assert names.of(first) == []


def test_an_optional_value_is_there_from_put_to_forget() -> None:
    slot, connection = OptionalSlot[int](), Connection()
    assert slot.of(connection) is None
    assert not connection.slot_values
    slot.put(connection, 0)
    assert slot.of(connection) == 0
    slot.forget(connection)
    slot.forget(connection)
    assert slot.of(connection) is None


def test_a_factory_that_fails_leaves_no_value() -> None:
    def broken() -> int:
        raise ValueError("nothing to begin with")

    slot, connection = ConnectionSlot(broken), Connection()
    with pytest.raises(ValueError, match="nothing"):
        slot.of(connection)
    assert not connection.slot_values


def test_no_other_module_reads_the_values() -> None:
    """A look past the slot would bring back a dict by untyped keys. Connections only make it, and empty it."""
    touches = re.compile(r"\.slot_values\b(?!: SlotValues = \{\}| = \{\})")
    paths = [
        str(path.relative_to(CHECKOUT))
        for path in sorted((CHECKOUT / "proxy" / "kafka_share_proxy").rglob("*.py"))
        if any(touches.search(line) for line in path.read_text().splitlines())
    ]
    assert paths == ["proxy/kafka_share_proxy/brokers/connection_slots.py"]
