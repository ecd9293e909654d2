"""Which node coordinates a group or a transactional id."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from kafka_share_proxy.wire.values import UNKNOWN_NODE

SLOTS = 50
"""Number of slots that keys are hashed to, as of partitions of __consumer_offsets."""


class CoordinatorKind(IntEnum):
    """Key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


def slot_of(key: str) -> int:
    """Return the slot of a key: Java's hash of the string, as in GroupMetadataManager.partitionFor."""
    number = 0
    encoded = key.encode("utf-16-be")
    for index in range(0, len(encoded), 2):
        number = (31 * number + int.from_bytes(encoded[index : index + 2], "big")) & 0xFFFFFFFF
    return (number & 0x7FFFFFFF) % SLOTS


class Coordinators:
    """Coordinators by kind and key. A node that is down is replaced by the next one."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._up = set(range(1, nodes + 1))
        self._moved: dict[tuple[CoordinatorKind, str], int] = {}
        self._listeners: list[Callable[[], None]] = []

    def node_of(self, kind: CoordinatorKind, key: str) -> int:
        """Return the node id, UNKNOWN_NODE if no node is up."""
        first = self._moved.get((kind, key), slot_of(key) % self._nodes + 1)
        around = [(first - 1 + step) % self._nodes + 1 for step in range(self._nodes)]
        return next((node for node in around if node in self._up), UNKNOWN_NODE)

    def move(self, kind: CoordinatorKind, key: str, node_id: int) -> None:
        """Give a key to another node."""
        self._moved[kind, key] = node_id
        self._notify()

    def set_up(self, up: set[int]) -> None:
        """Set the nodes that are up."""
        self._up = set(up)
        self._notify()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every move."""
        self._listeners.append(listener)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()
