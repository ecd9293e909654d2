"""Memory of large responses, used again once no records refer to it.

New memory costs as much as the copy of what is received: the kernel clears its pages, and nothing of it is in the
processor's cache.
"""

from __future__ import annotations

from kafka_share_proxy.wire.records.record_positions import room
from kafka_share_proxy.wire.values import MIB

FRAME_BYTES_MAX = 8 * MIB
"""Maximum bytes of a block of memory that is used again."""
UNUSED_MAX = 2
"""Maximum number of free blocks of memory that one consumer keeps."""
SPARE = 8
"""One part in this many is added to a size, because the sizes of similar responses differ a little."""


class FrameMemory:
    """Memory for the frames of one consumer."""

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: list[bytearray] = []
        """Blocks in use, and a few free ones."""

    def take(self, size: int) -> memoryview:
        """Return memory of this size with any content, in use as long as a memoryview refers to it."""
        fitting = (each for each in self._blocks if size <= len(each) <= 2 * size and _is_free(each))
        memory = next(fitting, None)
        if memory is None:
            memory = room(size + size // SPARE)
            if len(memory) <= FRAME_BYTES_MAX:
                self._blocks.append(memory)
        view = memoryview(memory)[:size]
        self.drop_unused(UNUSED_MAX)
        return view

    def drop_unused(self, unused_max: int = 1) -> None:
        """Release free blocks, except the last `unused_max` ones."""
        unused = [number for number, each in enumerate(self._blocks) if _is_free(each)]
        for number in reversed(unused[: max(0, len(unused) - unused_max)]):
            del self._blocks[number]


def _is_free(memory: bytearray) -> bool:
    """Try to change the size, which is refused while a memoryview refers to it."""
    try:
        memory.append(memory.pop())
    except BufferError:
        return False
    return True
