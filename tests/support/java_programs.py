"""Java programs of the tests, compiled by Eclipse's compiler: a Java without a compiler runs them, too."""

from __future__ import annotations

import os
from pathlib import Path

from kafka_share_proxy.localkafka.jars import class_path
from kafka_share_proxy.localkafka.java import QUICK_START, find_java

from tests.support.programs import CLIENTS, built

COMPILER = "ecj-3.38.0"
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"


def compiled(name: str, release: str, source: Path | None = None) -> Path:
    """The folder with the class of that name, compiled against a release.

    The source is tests/clients/`name in small letters`/`name`.java, unless another one is given.
    """
    folder = name.lower()
    source = source or CLIENTS / folder / f"{name}.java"
    arguments = ["-source", "17", "-target", "17", "-proc:none", "-cp", class_path(release), source.name]
    command = [find_java(), *QUICK_START, "-jar", class_path(COMPILER), *arguments]
    return built(f"{folder}-{release}", command, f"{name}.class", [source])


def java_program(name: str, release: str, *options: str, source: Path | None = None) -> list[str]:
    """The command line that runs it with the jars of the release; `options` are for Java. Arguments may follow."""
    paths = os.pathsep.join([str(compiled(name, release, source)), class_path(release)])
    return [find_java(), *QUICK_START, "-Xmx256m", *(options or (QUIET,)), "-cp", paths, name]
