VERSION: int
CHECKSUM: str

def split(
    batch: bytes | memoryview,
    body: bytes | memoryview | None,
    rule: int,
    slots: int,
    starts: bytes,
    targets: bytes,
    null_keys: int,
    key_index: bytes,
    key_bytes: bytes,
    wanted: bytes,
    from_offset: int,
    /,
) -> list[tuple[memoryview | bytes | None, int, int]]: ...
def crc32c(data: bytes | bytearray | memoryview, /) -> int: ...
def murmur2(key: bytes | memoryview, /) -> int: ...
