"""Bytes that look random and depend on the seed of the cluster only."""

from __future__ import annotations

import hashlib
import uuid


class SeededBytes:
    """Source of ids. Two clusters with the same seed and the same requests have the same ids."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._count = 0

    def take(self, count: int) -> bytes:
        """Return the next bytes, at most 32."""
        self._count += 1
        return hashlib.sha256(f"{self._seed}/{self._count}".encode()).digest()[:count]

    def number(self, below: int) -> int:
        """Return a number from 0 to before `below`."""
        return int.from_bytes(self.take(8), "big") % below

    def uuid(self) -> bytes:
        """Return the 16 bytes of a UUID of version 4."""
        return uuid.UUID(bytes=self.take(16), version=4).bytes

    def uuid_text(self) -> str:
        return str(uuid.UUID(bytes=self.uuid()))
