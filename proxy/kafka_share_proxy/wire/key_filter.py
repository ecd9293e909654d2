"""Tagged field `KeyFilter` of a fetched partition.

Layouts: schemas/internal/KeyFilter.json, KeyFilterApplied.json; rules: views/README.md 46.
"""

from __future__ import annotations

from enum import IntEnum

TAG = 27501
"""Tag in FetchRequest.FetchPartition and in FetchResponse.PartitionData. Kafka allocates its own tags from 0 up."""
LAYOUT_VERSION, MURMUR2 = 1, 1
RANGES_MAX = KEYS_MAX = 65_536


class NullKeys(IntEnum):
    """Handling of records without a key."""

    DROP = 0
    KEEP = 1
    BY_OFFSET = 2
    """Use the hash of their 8-byte big-endian offset."""
