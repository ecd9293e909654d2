from array import array
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Built = TypeVar("Built", bound=tuple[Any, ...])
Bytes = bytes | bytearray | memoryview

VERSION: int

def find(
    area: Bytes,
    count: int,
    base_offset: int,
    last_offset: int,
    base_timestamp: int,
    append_time: int | None,
    /,
) -> bytes: ...
def find_run(data: Bytes, start: int, end: int, is_checked: bool, /) -> tuple[bytes, int, str | None]: ...
def build(
    area: Bytes,
    columns: bytes,
    first: int,
    last: int,
    record_type: type[Built],
    timestamp_type: int,
    headers_type: Any,
    origin: tuple[Any, ...],
    /,
) -> list[Built]: ...
def records(
    area: Bytes,
    columns: bytes,
    first: int,
    last: int,
    record_type: type[Built],
    timestamp_type: int,
    headers_type: Any,
    origin: tuple[Any, ...],
    after: Iterator[Built] | None,
    /,
) -> Iterator[Built]: ...
def open_batch(
    data: Bytes, start: int, end: int, is_checked: bool, open_payload: Callable[[int, Any], Bytes], /
) -> tuple[Bytes, bytes]: ...
def room(size: int, /) -> bytearray: ...

class HandedOut(AsyncIterator[T], Generic[T]):
    def __anext__(self) -> Coroutine[Any, Any, T]: ...
    def begin(self, current: Iterator[T], position: Any, moves: int, /) -> None: ...

def handed_out(slow: Callable[[], Coroutine[Any, Any, T]], /) -> HandedOut[T]: ...
def hashes(area: Bytes, columns: bytes, first: int, last: int, /) -> bytes: ...
def order_keys(area: Bytes, columns: bytes, first: int, last: int, /) -> tuple[bytes, bytes]: ...
def sample(
    area: Bytes, count: int, base_offset: int, first: int, every: int, /
) -> tuple[bytes, bytes, bytes | None]: ...
def tally(samples: bytes, records: array[int], sizes: array[int], weight: int, /) -> int: ...
