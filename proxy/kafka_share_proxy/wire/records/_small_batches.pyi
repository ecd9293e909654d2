from typing import Any

VERSION: int

def build(
    records: list[Any],
    base_offset: int,
    leader_epoch: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    attributes: int,
    /,
) -> bytes | None: ...
def has_only(batch: bytes | bytearray | memoryview, prefix: bytes, /) -> bool: ...
def keep_last(
    data: bytes | bytearray | memoryview,
    start: int,
    stop: int,
    next_offset: int,
    until: int,
    types: bytes,
    values: dict[bytes, bytes],
    writers: dict[bytes, Any],
    writer: tuple[int, int],
    /,
) -> tuple[int, int, int]: ...
