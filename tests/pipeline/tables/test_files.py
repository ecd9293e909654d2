"""Small files through the JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.pipeline.tables.files import Files

pytestmark = pytest.mark.slow


def test_a_file_is_written_as_a_whole_and_read_again(spark: Any, tmp_path: Path) -> None:
    files, path = Files(spark), str(tmp_path / "deep" / "note.json")
    assert not files.exists(path)
    files.write(path, '{"a": "ü"}')
    assert files.read(path) == '{"a": "ü"}'
    assert Path(path).read_text() == '{"a": "ü"}'
    assert not files.exists(f"{path}.new")
    files.write(path, "replaced")
    assert files.read(path) == "replaced"
    files.delete(str(tmp_path / "deep"))
    files.delete(str(tmp_path / "deep"))
    assert not files.exists(path)


def test_local_paths_and_compressed_files_are_recognised(spark: Any, tmp_path: Path) -> None:
    files = Files(spark)
    for path in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}/"):
        assert Path(str(files.local(path))) == tmp_path
    own_folder = spark.sparkContext._jvm.System.getProperty("user.dir")  # set by the fixture
    assert files.local("relative") == f"{own_folder}/relative"
    assert files.local("hdfs://127.0.0.1:9/lake") is None
    file_names = ("a.jsonl", "a.jsonl.gz", "a.bz2", "a.jsonl.1")
    assert [files.is_compressed(name) for name in file_names] == [False, True, True, False]
