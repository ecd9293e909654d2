"""List of the mappings of a process."""

from __future__ import annotations

import sys

import pytest
from kafka_share_proxy.app.serving.mappings import Mapping, mappings, parse

LISTED = """\
7f0000000000-7f0000004000 r-xp 00001000 fe:01 42         /usr/lib/a library.so
Size:                 16 kB
Rss:                  12 kB
Anonymous:             4 kB
VmFlags: rd ex mr mw me
7f0000005000-7f0000006000 rw-p 00000000 00:00 0
Rss:                   0 kB
"""


def test_each_mapping_has_its_file_and_what_of_it_is_in_memory() -> None:
    library, memory = parse(LISTED.splitlines())
    path = "/usr/lib/a library.so"
    assert library == Mapping(0x7F0000000000, 0x7F0000004000, "r-xp", 42, path, 12 << 10, 4 << 10)
    assert memory == Mapping(0x7F0000005000, 0x7F0000006000, "rw-p", 0, "", 0, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_has_a_stack() -> None:
    assert "[stack]" in [each.path for each in mappings()]
