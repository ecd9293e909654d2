"""Kafka's own jars, pinned in jars.toml, fetched once into a cache folder and verified by their sha256.

A release is a named set of jars ("3.9.1", "4.3.0": brokers with their tools; "clients-4.4.0": the newest client).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile

from maven_artifact import Artifact, Downloader, RequestException
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

CACHE_VARIABLE = "KAFKA_JARS_CACHE"
REPOSITORY_VARIABLE = "KAFKA_JARS_REPOSITORY"
"""Environment variable with the URL of a Maven repository to use instead of the central one."""

ATTEMPTS = 4
"""Attempts per jar, with a growing pause between them."""
PAUSE_S = 0.5
PARALLEL = 4
TIMEOUT_S = (15.0, 30.0)
"""Seconds to connect, and between two parts of the response."""


class JarError(Exception):
    """A jar could not be fetched. The text names it and the reason."""


def releases() -> dict[str, dict[str, str]]:
    """Return {release: {"group:artifact:version": sha256}}."""
    return tomllib.loads((Path(__file__).parent / "jars.toml").read_text(encoding="utf-8"))


def cache_folder() -> Path:
    """Return the folder in the environment variable, else in the user's cache (XDG)."""
    if folder := os.environ.get(CACHE_VARIABLE):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafka-share-proxy" / "jars"


def class_path(*names: str, console: Console | None = None) -> str:
    """Fetch missing jars. Raises JarError if one cannot be fetched or is not the pinned one."""
    pinned = releases()
    digests = {coordinate: digest for name in names for coordinate, digest in pinned[name].items()}
    fetch(digests, console)
    return os.pathsep.join(str(_jar_path(coordinate)) for coordinate in digests)


def fetch(digests: dict[str, str], console: Console | None = None) -> None:
    """Fetch missing jars. `digests`: "group:artifact:version" to sha256."""
    if not _missing(digests):
        return
    columns = (
        TextColumn("Fetching Kafka"), BarColumn(), TextColumn("{task.fields[jars]}"), DownloadColumn(),
        TimeElapsedColumn(),
    )  # fmt: skip
    with exclusive(cache_folder()):
        missing = _missing(digests)  # another process may have fetched them in the meantime
        with Progress(*columns, console=console or Console(stderr=True)) as progress:
            task = progress.add_task("jars", total=None, jars=f"0/{len(missing)} jars")
            _fetch_all(missing, digests, progress, task)


def _missing(digests: dict[str, str]) -> list[str]:
    return [name for name, digest in digests.items() if not _is_valid(name, digest)]


def _fetch_all(missing: Sequence[str], digests: dict[str, str], progress: Progress, task: TaskID) -> None:
    """Raise the first failure after the others have ended."""
    with ThreadPoolExecutor(PARALLEL) as pool:
        jobs = [pool.submit(_fetch_one, name, digests[name], progress, task) for name in missing]
        for done, job in enumerate(jobs, 1):
            job.result()
            progress.update(task, jars=f"{done}/{len(missing)} jars")
    progress.update(task, total=progress.tasks[0].completed)


def _fetch_one(coordinate: str, digest: str, progress: Progress, task: TaskID) -> None:
    for attempt in range(ATTEMPTS):
        try:
            _download(coordinate, digest, progress, task)
        except (JarError, OSError, RequestException) as error:  # requests' own errors are OSErrors
            problem = getattr(error, "msg", "") or str(error)
            time.sleep(PAUSE_S * 2**attempt if attempt + 1 < ATTEMPTS else 0)
        else:
            return
    raise JarError(f"cannot fetch {coordinate} after {ATTEMPTS} attempts: {problem}")


def _download(coordinate: str, digest: str, progress: Progress, task: TaskID) -> None:
    """Write to a temporary name first: an interrupted run leaves no incomplete jar."""
    repository = os.environ.get(REPOSITORY_VARIABLE)
    downloader = Downloader(base=repository) if repository else Downloader()
    url = downloader.resolver.uri_for_artifact(Artifact.parse(coordinate))
    path, computed = _jar_path(coordinate), hashlib.sha256()
    response = downloader.requestor.request(url, None, stream=True, timeout=TIMEOUT_S)
    with response, NamedTemporaryFile(dir=path.parent, prefix=".part-", delete=False) as file:
        try:
            for piece in response.iter_content(chunk_size=1 << 16):
                computed.update(piece)
                file.write(piece)
                progress.advance(task, len(piece))
            if computed.hexdigest() != digest:
                raise JarError(f"its sha256 is {computed.hexdigest()}, pinned is {digest}")
            Path(file.name).replace(path)
        finally:
            Path(file.name).unlink(missing_ok=True)


def _jar_path(coordinate: str) -> Path:
    _, artifact, version = coordinate.split(":")
    return cache_folder() / f"{artifact}-{version}.jar"


def _is_valid(coordinate: str, digest: str) -> bool:
    path = _jar_path(coordinate)
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return _digest(path, status.st_mtime_ns, status.st_size) == digest


@cache
def _digest(path: Path, _changed_ns: int, _size: int) -> str:
    """Return a cached digest, because every started tool needs it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold this folder's exclusive lock between processes. A process that dies releases it."""
    folder.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.turn").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
