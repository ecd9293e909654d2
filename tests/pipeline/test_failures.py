"""A job that fails prints one line with the cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.pipeline.failures import CHARACTERS_MAX, one_line
from kafka_share_proxy.pipeline.source.options import BadOption
from kafka_share_proxy.pipeline.tables.files import Files, LakeError

QUOTED = """[PYTHON_DATA_SOURCE_ERROR] Failed when running: Traceback (most recent call last):
  File "worker.py", line 107, in main
    raise TopicReplaced(text)
kafka_share_proxy.pipeline.kafka.cluster.TopicReplaced: topic orders was deleted and created again

	at org.apache.spark.sql.execution.python.Runner.run(Runner.scala:1)
"""


class Thrown:
    """Java exception as py4j shows it."""

    def __init__(self, message: str | None, cause: Thrown | None = None) -> None:
        self._message, self._cause = message, cause

    def getClass(self) -> Any:
        return self

    def getSimpleName(self) -> str:
        return "IOException"

    def getMessage(self) -> str | None:
        return self._message

    def getCause(self) -> Thrown | None:
        return self._cause


class Py4JError(Exception):
    def __init__(self, thrown: Thrown) -> None:
        super().__init__("An error occurred while calling o1.save.\n\tat org.apache")
        self.java_exception = thrown


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (BadOption("columns: name\n  each once"), "columns: name each once"),
        (RuntimeError(QUOTED), "topic orders was deleted and created again"),
        (Py4JError(Thrown("Job aborted", Thrown("No space left on device\n\tat java.io"))),
         "IOException: No space left on device"),
        (Py4JError(Thrown("Job aborted", Thrown(QUOTED, Thrown("socket closed")))),
         "topic orders was deleted and created again"),
        (Py4JError(Thrown(None)), "IOException"),
        (Py4JError(Thrown("Task failed: Traceback\n  File x\nzlib.error.Error: invalid distance\n")),
         "zlib.error.Error: invalid distance"),
        (FileNotFoundError(2, "No such file or directory", "/absent"), "/absent: No such file or directory"),
        (ValueError("one\ntwo"), "ValueError: one"),
        (AssertionError(), "AssertionError"),
    ],
)  # fmt: skip
def test_the_cause_is_one_line(error: Exception, text: str) -> None:
    assert one_line(error) == text


def test_a_cause_without_end_is_cut_and_one_of_itself_ends() -> None:
    thrown = Thrown("again")
    thrown._cause = thrown
    assert one_line(Py4JError(thrown)) == "IOException: again"
    assert len(one_line(ValueError("x" * 10_000))) < CHARACTERS_MAX + 10


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_to_is_an_error_before_anything_is_read(spark: Any, tmp_path: Path) -> None:
    files = Files(spark)
    files.check_writable(f"{tmp_path}/lake")
    assert list((tmp_path / "lake").iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(LakeError, match=r"/file/lake cannot be written to: .*not a directory") as failed:
        files.check_writable(f"{tmp_path}/file/lake")
    assert "\n" not in str(failed.value)
