"""How many files a batch is worth, by the checkpoint of its stream (pipeline/README.md rule 57)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.pipeline.source.checkpoints import (
    ROWS_PER_FILE,
    files_for,
    files_of_batch,
    last_committed,
    stored_offset,
)
from kafka_share_proxy.pipeline.tables.files import Files
from kafka_share_proxy.wire.values import TopicPartition

PLACE = TopicPartition("orders", 0)


def test_a_file_has_many_rows_and_there_is_one_at_least() -> None:
    assert [files_for(each) for each in (0, 1, ROWS_PER_FILE, ROWS_PER_FILE + 1)] == [1, 1, 1, 2]


@pytest.mark.slow
def test_the_size_of_a_batch_is_read_from_the_checkpoint(spark: Any, tmp_path: Path) -> None:
    files, checkpoint = Files(spark), str(tmp_path)
    for number, end in enumerate((10 * ROWS_PER_FILE, 12 * ROWS_PER_FILE)):
        (tmp_path / "offsets").mkdir(exist_ok=True)
        stored = json.dumps({"v": 2, "ids": {}, "t": {"orders": {"0": end}}})
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{stored}")
    batch = {"v": 1, "seq": 1, "ids": {"orders": ""}, "tokens": [["orders-0", 0, 3 * ROWS_PER_FILE - 1]]}
    tokens = json.dumps(batch)
    (tmp_path / "offsets" / "2").write_text(f"v1\n{{}}\n{tokens}")
    (tmp_path / "offsets" / "3").write_text("")
    (tmp_path / "offsets" / "4").write_text('v1\n{}\n{"v": 9}')
    start = {PLACE: 3 * ROWS_PER_FILE}
    assert [files_of_batch(files, checkpoint, each, start) for each in range(6)] == [7, 2, 3, None, None, None]
    assert stored_offset(files, checkpoint, 7) is None
    assert last_committed(files, checkpoint) == -1
    (tmp_path / "commits").mkdir()
    for name in ("0", "12", ".12.crc"):
        (tmp_path / "commits" / name).write_text("")
    assert last_committed(files, checkpoint) == 12
