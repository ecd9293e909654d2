"""Archives of loaded classes (JEP 350). A short run of Java spends half its time loading and verifying classes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from kafka_share_proxy.localkafka.jars import cache_folder, exclusive


def archive_options(java: str, jars: str, run: str, make: Callable[[str], int]) -> tuple[str, ...]:
    """Return the Java options to use the archive named `run`.

    If it is missing, `make` is called with the option to write one, and returns the exit status, negative for a signal.
    """
    files = [Path(name) for name in (java, *jars.split(os.pathsep))]
    identity = "".join([f"{run}\n", *(f"{file} {file.stat().st_mtime_ns}\n" for file in files)])
    archive = cache_folder().parent / "classes" / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.jsa"
    with exclusive(archive.parent):
        if not archive.exists():
            _make(archive, make)
    return ("-Xlog:disable", f"-XX:SharedArchiveFile={archive}") if archive.exists() else ()


def _make(archive: Path, make: Callable[[str], int]) -> None:
    """Write to a temporary name first: an interrupted run must not leave an archive."""
    part = archive.with_suffix(".part")
    part.unlink(missing_ok=True)
    status = make(f"-XX:ArchiveClassesAtExit={part}")
    if status >= 0 and part.exists():
        part.rename(archive)
