"""The tagged field `KeyFilter` of a fetched partition: what clients of the proxy and the proxy agree on.

Layouts: schemas/internal/KeyFilter.json, KeyFilterApplied.json; rules: views/README.md 46.
"""

from __future__ import annotations

from enum import IntEnum

TAG = 27501
"""Of FetchRequest.FetchPartition and of FetchResponse.PartitionData; Kafka allots its own from 0 up."""
LAYOUT_VERSION, MURMUR2 = 1, 1
RANGES_MAX = KEYS_MAX = 65_536
"""Hash ranges, and single keys, of one filter."""


class NullKeys(IntEnum):
    """What happens to records without a key (`NullKeys` of schemas/internal/KeyFilter.json)."""

    DROP = 0
    KEEP = 1
    BY_OFFSET = 2
    """They lie where the hash of their 8-byte big-endian offset does."""
