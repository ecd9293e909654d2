from array import array
from typing import Any

VERSION: int

def plan(
    frame: bytes | bytearray | memoryview,
    version: int,
    entry: tuple[Any, ...],
    committed: int,
    starts: array[int],
    ends: array[int],
    characters: int,
    ranges_max: int,
    sample: bytes | None,
    /,
) -> tuple[bytes, tuple[int, int, int, int]] | None: ...
