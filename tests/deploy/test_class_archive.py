"""Archives of Java's classes: made once, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka import jars
from kafka_share_proxy.localkafka.class_archive import archive_options


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Create a file that takes the place of Java and the class path."""
    monkeypatch.setenv(jars.CACHE_VARIABLE, str(tmp_path / "cache" / "jars"))
    file = tmp_path / "java"
    file.touch()
    return str(file)


class Java:
    """Fake Java that writes this many bytes when it ends, with that status; counts its runs."""

    def __init__(self, content: bytes | None, status: int = 143) -> None:
        self._content, self._status = content, status
        self.runs = 0

    def __call__(self, writing: str) -> int:
        self.runs += 1
        name, _, path = writing.partition("=")
        assert name == "-XX:ArchiveClassesAtExit"
        if self._content is not None:
            Path(path).write_bytes(self._content)
        return self._status


def archive_of(options: tuple[str, ...]) -> bytes:
    return Path(options[-1].removeprefix("-XX:SharedArchiveFile=")).read_bytes()


def test_an_archive_is_made_once_and_for_each_run_its_own(java: str) -> None:
    first, second = Java(b"broker"), Java(b"tool")
    for _ in range(2):
        assert archive_of(archive_options(java, java, "broker", first)) == b"broker"
        assert archive_of(archive_options(java, java, "tool", second)) == b"tool"
    assert (first.runs, second.runs) == (1, 1)


def test_jars_that_changed_have_another_archive(java: str, tmp_path: Path) -> None:
    jar = tmp_path / "kafka.jar"
    jar.touch()
    before = archive_options(java, str(jar), "broker", Java(b"old"))
    os.utime(jar, ns=(0, 1))
    assert archive_of(archive_options(java, str(jar), "broker", Java(b"new"))) == b"new"
    assert archive_of(before) == b"old"


@pytest.mark.parametrize("cut_off", [Java(b"half", -9), Java(None)])
def test_half_an_archive_or_none_is_done_without_until_one_is_whole(java: str, cut_off: Java) -> None:
    assert archive_options(java, java, "broker", cut_off) == ()
    assert archive_of(archive_options(java, java, "broker", Java(b"whole"))) == b"whole"
