"""Peak memory of consumers that read batches which are small when compressed and large when opened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kafka_share_proxy.wire.records import compression
from kafka_share_proxy.wire.records.records import Record, build_batch

BATCHES = 12
RECORD_MIB, RECORDS_OF_A_BATCH = 15, 4
"""A batch opens to 60 MiB."""
PEAK_MIB = 320
"""Above that of the program before it reads: an opened batch that the application still has, the next one, and records
made of it, each 60 MiB, and slack. With 30 batches it is 196 at most; it was 1,876 for a consumer and 3,602 for a share
consumer when all batches of a fetch were opened together.
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("batch") / "batch"
    values = [Record(value=bytes(RECORD_MIB << 20)) for _ in range(RECORDS_OF_A_BATCH)]
    path.write_bytes(build_batch(0, values, codec=compression.ZSTD))
    assert path.stat().st_size < 4096
    return path


@pytest.mark.parametrize("arguments", [("consumer", "500"), ("consumer", "1"), ("share",)], ids=" ".join)
def test_a_consumer_opens_one_batch_after_the_other(batch: Path, arguments: tuple[str, ...]) -> None:
    kind, *records_max = arguments
    command = [sys.executable, "-m", "tests.client.peak_memory_program", kind, str(batch), str(BATCHES), *records_max]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=200).stdout
    before, peak = map(int, output.split())
    assert peak - before < PEAK_MIB
