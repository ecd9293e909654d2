from typing import Any

VERSION: int

def read(frame: bytes | bytearray | memoryview, version: int, /) -> tuple[Any, ...] | None: ...
def accepted(frame: bytes | bytearray | memoryview, version: int, partitions: int, /) -> bool: ...
def rewritten(
    frame: bytes | bytearray | memoryview,
    version: int,
    entries: list[Any],
    fields: list[tuple[int, int, str | None]],
    /,
) -> bytes: ...
