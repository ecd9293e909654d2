"""Memory of the process in huge pages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kafka_share_proxy.app.serving import huge_pages, mappings

SIZE = 0x200000

MAPPING = """\
{begin:x}-{end:x} {mode} 00000000 00:00 {inode}{path}
Size:           {size} kB
KernelPageSize:        4 kB
Rss:            {rss} kB
Pss:            {rss} kB
VmFlags: rd wr mr mw me ac sd
"""


def mapping(begin: int, mib: float, used: float = 1.0, mode: str = "rw-p", inode: int = 0, path: str = "") -> str:
    """One of /proc/self/smaps."""
    size = round(mib * 1024)
    shown = {"size": size, "rss": round(size * used), "mode": mode, "inode": inode, "path": f"   {path}" * bool(path)}
    return MAPPING.format(begin=begin, end=begin + (size << 10), **shown)


def blocks(*listed: str) -> list[int]:
    return list(huge_pages._blocks(mappings.parse("".join(listed).splitlines()), SIZE))


def test_aligned_blocks_of_memory_in_use_are_moved() -> None:
    """Memory before the first and after the last boundary is not moved."""
    assert blocks(mapping(SIZE * 10, 4)) == [SIZE * 10, SIZE * 11]
    assert blocks(mapping(SIZE * 10 + 4096, 4)) == [SIZE * 11]
    assert blocks(mapping(SIZE * 10 + 4096, 2)) == []
    assert blocks(mapping(SIZE, 2), mapping(SIZE * 9, 2, path="[heap]")) == [SIZE, SIZE * 9]


@pytest.mark.parametrize(
    "left",
    [
        mapping(SIZE, 8, used=0.8),
        mapping(SIZE, 8, mode="rw-s"),
        mapping(SIZE, 8, mode="r-xp"),
        mapping(SIZE, 8, path="[stack]"),
        mapping(SIZE, 8, inode=42, path="/usr/lib/libc.so.6"),
    ],
)
def test_memory_that_is_hardly_used_or_not_only_ours_stays(left: str) -> None:
    """A huge page that is half empty would make the process grow; a file's pages are shared."""
    assert blocks(left, mapping(SIZE * 100, 2)) == [SIZE * 100]


@pytest.mark.parametrize(
    ("enabled", "bytes_of_one", "size"),
    [
        ("always [madvise] never", "2097152", SIZE),
        ("always madvise [never]", "2097152", 0),
        ("[always] madvise never", str(512 << 20), 0),
        ("[always] madvise never", "unknown", 0),
        (None, None, 0),
    ],
)
def test_nothing_is_moved_if_huge_pages_are_disabled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, enabled: str | None, bytes_of_one: str | None, size: int
) -> None:
    monkeypatch.setattr(huge_pages, "HUGE_PAGES", tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    for name, text in (("enabled", enabled), ("hpage_pmd_size", bytes_of_one)):
        if text is not None:
            (tmp_path / name).write_text(text + "\n")
    assert huge_pages._huge_page_size() == size


def test_nothing_is_moved_where_there_are_no_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert huge_pages.move() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_is_moved_is_in_huge_pages_and_the_process_has_not_grown() -> None:
    """On this machine's kernel; a kernel that refuses moves nothing, and the result says so."""
    program = """
import re
from pathlib import Path
from kafka_share_proxy.app.serving import huge_pages
kept = [[number] for number in range(600_000)]
def kib(name):
    found = re.search(rf"^{name}:\\s+(\\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.M)
    return int(found[1])
before = kib("Rss")
moved = huge_pages.move()
print(moved, kib("AnonHugePages") << 10, kib("Rss") - before)
assert [sum(map(len, kept)), kept[-1]] == [600_000, [599_999]]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    moved, huge, grown_kib = map(int, done.stdout.split())
    assert huge >= moved
    assert grown_kib < 4096
