"""Archives of loaded classes (JEP 350): half of what a short run of Java does is to load and verify its classes.

An archive is made once, in the user's cache folder, by a run that ends in good order. A Java that cannot make one, or
does not like the one that is there, does without.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from localkafka.jars import cache_folder
from localkafka.turns import turn


def archive_options(java: str, jars: str, run: str, make: Callable[[str], int]) -> tuple[str, ...]:
    """Return the options by which that Java takes classes of the class path `jars` out of the archive named `run`.

    Where it is missing, `make` is called with the option that has Java write one at its exit, and returns the status
    of that process, negative where a signal ended it.
    """
    files = [Path(name) for name in (java, *jars.split(os.pathsep))]
    named = "".join([f"{run}\n", *(f"{file} {file.stat().st_mtime_ns}\n" for file in files)])
    archive = cache_folder().parent / "classes" / f"{hashlib.sha256(named.encode()).hexdigest()[:16]}.jsa"
    with turn(archive.parent):
        if not archive.exists():
            _make(archive, make)
    return ("-Xlog:disable", f"-XX:SharedArchiveFile={archive}") if archive.exists() else ()


def _make(archive: Path, make: Callable[[str], int]) -> None:
    """Write to a file of another name first: a run that is cut off leaves half an archive."""
    part = archive.with_suffix(".part")
    part.unlink(missing_ok=True)
    status = make(f"-XX:ArchiveClassesAtExit={part}")
    if status >= 0 and part.exists():
        part.rename(archive)
