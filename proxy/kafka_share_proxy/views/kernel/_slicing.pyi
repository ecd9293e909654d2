from collections.abc import Sequence

from kafka_share_proxy.views.model.slots import Packed

VERSION: int
CHECKSUM: str

def split(
    batch: bytes | memoryview,
    body: bytes | memoryview | None,
    packed: Packed,
    wanted: Sequence[int],
    from_offset: int,
    /,
) -> list[tuple[memoryview | bytes | None, int, int]]: ...
def crc32c(data: bytes | bytearray | memoryview, /) -> int: ...
def crc32c_combine(first: int, second: int, size: int, /) -> int: ...
def pretend(most: int, /) -> None: ...
def hashes(keys: list[bytes], /) -> bytes: ...
def murmur2(key: bytes | memoryview, /) -> int: ...
