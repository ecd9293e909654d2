from array import array
from typing import Any

VERSION: int

def plan(
    received: bytes | bytearray | memoryview,
    size: int,
    sample: tuple[int, tuple[Any, ...], int, bytes | None],
    committed: int,
    bounds: tuple[array[int], array[int]],
    characters: int,
    /,
) -> tuple[bytes, int, int, int, int, int, int, int] | None: ...
def merge_repeated(
    response: bytes,
    sample: bytes,
    bounds: tuple[array[int], array[int]],
    plan: tuple[bytes, int, int, int, int, int, int, int],
    /,
) -> bool: ...
