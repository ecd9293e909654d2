"""Stored state of a share partition: one full snapshot, without locks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import starmap
from struct import Struct

from kafka_share_proxy.wire.codec.primitives import read_uvarint, uvarint
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.errors import RemoteProtocolError

AVAILABLE = 0
ACKNOWLEDGED = 2
ARCHIVING = 3
ARCHIVED = 4
"""Delivery states as Kafka stores them (RecordState; ARCHIVING since 4.4: to be written as a dead letter)."""

NOT_DUE = -1
"""Due time of a batch that need not wait."""
REJECTED_CAUSE = 1

NOTHING_COUNTED = -1
"""Marker for a count of settled offsets while no delivery has ended yet (PartitionFactory's
UNINITIALIZED_DELIVERY_COMPLETE_COUNT).
"""

VERSION = 0
"""Version of written values (int16 at their start)."""

SNAPSHOT_BYTES_MAX = 256 << 10
"""Maximum bytes of a stored value (sharegroups/README.md rule 55): room for the 10,000 offsets of the largest
configurable window (`share.partition.max.record.locks`), each in a different state. Encoding it takes a few ms.
"""

_VERSION_BYTES = 2
_HEAD = Struct(">hqii")
"""The version, then the fields up to the batches."""
_BATCH = Struct(">qqbhx")
"""One batch without tagged fields."""
BATCH_BYTES = _BATCH.size
TAGGED_BATCH_BYTES = BATCH_BYTES + 13
"""Maximum bytes of a batch with tagged fields: a due time (10 bytes) and a cause (3 bytes)."""
_REST_BYTES = 6
"""Maximum bytes of the length of the batches array, and of the byte for no tagged fields."""


class BatchTags:
    """Tagged fields of the batches of one snapshot."""

    __slots__ = ("due_s", "rejected")

    def __init__(self) -> None:
        self.due_s: dict[int, int] = {}
        """See ShareSnapshot."""
        self.rejected: set[int] = set()

    def merge(self, first: int, following: int) -> bool:
        """Return True if two batches have equal tags. The following batch then has none, so that it can be merged."""
        due_s, rejected = self.due_s, self.rejected
        if due_s.get(first, NOT_DUE) != due_s.get(following, NOT_DUE) or (first in rejected) != (following in rejected):
            return False
        due_s.pop(following, None)
        rejected.discard(following)
        return True

    def fields(self) -> tuple[dict[int, int] | None, frozenset[int]]:
        """Return the last two fields of ShareSnapshot."""
        return self.due_s or None, frozenset(self.rejected)


def offsets_in(value_bytes: int, batch_bytes: int = BATCH_BYTES) -> int:
    """Return the number of offsets, at least 1, whose state fits into a stored value in any case."""
    return max(1, (value_bytes - _HEAD.size - _REST_BYTES) // batch_bytes)


StateBatch = tuple[int, int, int, int]
"""First offset, last offset, state, delivery count. A plain tuple: there may be very many."""


@dataclass(frozen=True, slots=True)
class ShareSnapshot:
    """Durable state of one share partition (sharegroups/README.md rule 54)."""

    start_offset: int
    state_epoch: int
    delivery_complete_count: int
    """Number of terminal offsets at or above start_offset, for the lag only. NOTHING_COUNTED: no lag is known yet."""
    batches: tuple[StateBatch, ...]
    """Ascending, not overlapping. States: 0 available, 2 acknowledged, 3 archiving, 4 archived."""
    due_s: Mapping[int, int] | None = None
    """Wall-clock seconds at which a batch is available again, by its first offset, rounded up. None if none waits."""
    rejected: frozenset[int] = frozenset()
    """First offsets of archiving batches that were rejected. The deliveries of the others are used up."""

    def encode(self) -> bytes:
        """Encode the value to store (schemas/internal/ShareSnapshotValue.json)."""
        return self._encode_tagged() if self.due_s or self.rejected else self._encode_plain()

    def _encode_plain(self) -> bytes:
        """Encode by hand: there may be very many batches, and the generated code needs at least 2 us for each."""
        return b"".join(
            (
                _HEAD.pack(VERSION, self.start_offset, self.state_epoch, self.delivery_complete_count),
                uvarint(len(self.batches) + 1),
                *starmap(_BATCH.pack, self.batches),
                b"\0",
            )
        )

    def _encode_tagged(self) -> bytes:
        message = messages.ShareSnapshotValue
        batches = [
            message.StateBatch(
                first_offset=first,
                last_offset=last,
                delivery_state=state,
                delivery_count=count,
                due_s=(self.due_s or {}).get(first, NOT_DUE),
                cause=int(first in self.rejected),
            )
            for first, last, state, count in self.batches
        ]
        stored = message(
            start_offset=self.start_offset,
            state_epoch=self.state_epoch,
            delivery_complete_count=self.delivery_complete_count,
            state_batches=batches,
        )
        return VERSION.to_bytes(_VERSION_BYTES, "big") + registry.codec_of(message, VERSION).encode(stored)

    @classmethod
    def decode(cls, value: bytes) -> ShareSnapshot:
        """Decode a stored value. Raises RemoteProtocolError, also for an unknown version."""
        cls.check_version(value)
        plain = cls._decode_plain(value)
        if plain is not None:
            return plain
        stored = registry.codec_of(messages.ShareSnapshotValue, VERSION).decode(value, _VERSION_BYTES)
        return cls(
            stored.start_offset,
            stored.state_epoch,
            stored.delivery_complete_count,
            tuple((b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in stored.state_batches),
            {b.first_offset: b.due_s for b in stored.state_batches if b.due_s != NOT_DUE} or None,
            frozenset(b.first_offset for b in stored.state_batches if b.cause == REJECTED_CAUSE),
        )

    @classmethod
    def _decode_plain(cls, value: bytes) -> ShareSnapshot | None:
        """Decode a value in the layout of `_encode_plain`. None for any other, which generated code decodes."""
        if len(value) <= _HEAD.size:
            return None
        _, start_offset, state_epoch, complete = _HEAD.unpack_from(value)
        length, first = read_uvarint(value, _HEAD.size)
        if len(value) != first + (length - 1) * _BATCH.size + 1 or any(value[first + _BATCH.size - 1 :: _BATCH.size]):
            return None
        batches = tuple(_BATCH.iter_unpack(value[first:-1]))
        return None if value[-1] else cls(start_offset, state_epoch, complete, batches)

    @classmethod
    def progress_in(cls, value: bytes) -> tuple[int, int]:
        """Return start offset and number of settled offsets after it, without decoding the batches.

        Raises RemoteProtocolError for an unknown version.
        """
        cls.check_version(value)
        _, start_offset, _, complete = _HEAD.unpack_from(value)
        return start_offset, max(complete, 0)

    @staticmethod
    def check_version(value: bytes) -> None:
        """Check the version of a stored value without decoding it. Raises RemoteProtocolError."""
        version = int.from_bytes(value[:_VERSION_BYTES], "big", signed=True)
        if version != VERSION or len(value) < _VERSION_BYTES:
            raise RemoteProtocolError(f"share state of version {version} is not known here")
