"""Mappings of this process, as Linux lists them in /proc/self/smaps."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

SMAPS = Path("/proc/self/smaps")


class Mapping(NamedTuple):
    """One range of addresses."""

    begin: int
    end: int
    access: str
    """Readable, writable, executable, private: rwxp, with - for each that it is not."""
    inode: int
    """Inode of its file; 0 without one."""
    path: str
    """File, or a name like [heap]. Empty without one."""
    resident: int
    """Bytes in memory."""
    changed: int
    """Bytes that are not those of the file."""


def mappings() -> Iterator[Mapping]:
    """Yield the mappings of this process. Raises OSError where the system does not list them."""
    with SMAPS.open() as lines:
        yield from parse(lines)


def advise(begin: int, size: int, advice: int) -> bool:
    """Advise the kernel about a range of addresses (madvise). Return False if it refuses."""
    call = ctypes.CDLL(None).madvise
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return not call(begin, size, advice)


def parse(lines: Iterable[str]) -> Iterator[Mapping]:
    """Yield the mappings in the text of /proc/PID/smaps (proc_pid_smaps(5))."""
    head: list[str] = []
    kib: dict[str, int] = {}
    for line in lines:
        if line[0].isupper():  # a field of the mapping, one of 22
            if line.startswith(("Rss:", "Anonymous:")):
                name, size, _ = line.split()
                kib[name] = int(size)
        else:
            if head:
                yield _mapping(head, kib)
            head, kib = line.split(), {}
    if head:
        yield _mapping(head, kib)


def _mapping(head: list[str], kib: dict[str, int]) -> Mapping:
    addresses, access, _offset, _device, inode, *path = head
    begin, end = (int(address, 16) for address in addresses.split("-"))
    resident, changed = kib.get("Rss:", 0) << 10, kib.get("Anonymous:", 0) << 10
    return Mapping(begin, end, access, int(inode), " ".join(path), resident, changed)
