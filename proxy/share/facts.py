"""What is stored of a share partition: one full snapshot, without locks."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.errors import RemoteProtocolError
from proxy.wire import registry

AVAILABLE = 0
ACKNOWLEDGED = 2
ARCHIVED = 4
"""Delivery states as Kafka stores them (RecordState, share-groups.md 4.1)."""

SCHEMA = "ShareSnapshotValue"
VERSION = 0
"""The version written. A stored value begins with its version (int16)."""

_VERSION_BYTES = 2


@dataclass(frozen=True, slots=True)
class ShareSnapshot:
    """The durable state of one share partition (share-groups.md 7.1)."""

    start_offset: int
    state_epoch: int
    delivery_complete_count: int
    """Terminal offsets at or above start_offset: for the lag only."""
    batches: tuple[tuple[int, int, int, int], ...]
    """(first, last, state, delivery count): 0 available, 2 acknowledged, 4 archived; ascending, not overlapping."""

    def encode(self) -> bytes:
        """The value to store (schemas/internal/ShareSnapshotValue.json)."""
        message = registry.message(SCHEMA)
        value = message(
            start_offset=self.start_offset,
            state_epoch=self.state_epoch,
            delivery_complete_count=self.delivery_complete_count,
            state_batches=[
                message.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in self.batches
            ],
        )
        return VERSION.to_bytes(_VERSION_BYTES, "big") + registry.codec(SCHEMA, VERSION).encode(value)

    @classmethod
    def decode(cls, value: bytes) -> ShareSnapshot:
        """Read a stored value. Raises RemoteProtocolError, also for a version that is not known here."""
        cls.check_version(value)
        stored = registry.codec(SCHEMA, VERSION).decode(value, _VERSION_BYTES)
        return cls(
            stored.start_offset,
            stored.state_epoch,
            stored.delivery_complete_count,
            tuple((b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in stored.state_batches),
        )

    @staticmethod
    def check_version(value: bytes) -> None:
        """Whether a stored value can be read here, without reading it. Raises RemoteProtocolError."""
        version = int.from_bytes(value[:_VERSION_BYTES], "big", signed=True)
        if version != VERSION or len(value) < _VERSION_BYTES:
            raise RemoteProtocolError(f"share state of version {version} is not known here")
