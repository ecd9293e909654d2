"""Pages of code that an idle process does not use."""

from __future__ import annotations

import subprocess
import sys

import pytest
from kafka_share_proxy.app.serving import idle_code
from kafka_share_proxy.app.serving.mappings import Mapping

LIBRARY = Mapping(0x1000, 0x2000, "r-xp", 42, "/usr/lib/libc.so.6", 4096, 0)


def test_code_as_in_its_file_can_be_unmapped() -> None:
    assert idle_code._is_as_in_file(LIBRARY)
    assert idle_code._is_as_in_file(LIBRARY._replace(access="r--p"))


@pytest.mark.parametrize(
    "mapping",
    [
        LIBRARY._replace(changed=4096),
        LIBRARY._replace(access="rw-p"),
        LIBRARY._replace(access="r--s"),
        LIBRARY._replace(inode=0, path="[vdso]"),
    ],
)
def test_memory_that_differs_from_its_file_is_not_unmapped(mapping: Mapping) -> None:
    """Relocated addresses, variables, memory without a file, and what other processes may change."""
    assert not idle_code._is_as_in_file(mapping)


def test_nothing_is_done_on_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert idle_code.unmap() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_unmapped_libraries_work_as_before() -> None:
    program = """
import hashlib, re, ssl
from pathlib import Path
import cramjam, pydantic_core
from kafka_share_proxy.app.serving import idle_code

def kib():
    return int(re.search(r"^Rss:\\s+(\\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.M)[1])

ssl.create_default_context()
before = kib()
unmapped = idle_code.unmap() >> 10
print(unmapped, before - kib())
assert bytes(cramjam.lz4.decompress(cramjam.lz4.compress(bytes(5000)))) == bytes(5000)
assert pydantic_core.from_json(b"[1]") == [1]
assert hashlib.sha256(b"").hexdigest().startswith("e3b0c442")
ssl.create_default_context()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    unmapped, less = map(int, done.stdout.split())
    assert less >= unmapped / 2 >= 2048
