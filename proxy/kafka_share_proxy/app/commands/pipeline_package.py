"""Command `pipeline package`: files that a cluster needs to run the jobs (pipeline/README.md rules 50 and 51).

A zip of this package for `--py-files`, an environment with the libraries that executors load for `--archives`, and a
program for spark-submit that accepts the arguments of `kafka-share-proxy pipeline`.
"""

from __future__ import annotations

import hashlib
import io
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from kafka_share_proxy.pipeline import zipped_kernels
from kafka_share_proxy.pipeline.zipped_kernels import KernelEntry
from kafka_share_proxy.wire.definitions import specs
from kafka_share_proxy.wire.errors import ProxyError

ZIP, ENVIRONMENT, PROGRAM = "kafka_share_proxy.zip", "environment.tar.gz", "run.py"
PACKAGE = "kafka_share_proxy"
SCHEMAS = f"{PACKAGE}/schemas"
FIRST = f"{PACKAGE}/pipeline/__init__.py"
"""File that is empty in the package but has content in the zip."""
ITSELF = "kafka-share-proxy"
LIBRARIES = ("numpy", "pyarrow")
"""Libraries that executors load in addition to this package's dependencies. Spark provides pyspark."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Timestamp of every file in the zip, so that the same package makes the same zip."""

RUN = '''\
"""The jobs of kafka-share-proxy for spark-submit: run.py audit|plan|ingest|backfill|report, as in `pipeline`."""

import kafka_share_proxy.pipeline  # first: from here on kernels are found in the zip
from kafka_share_proxy.app.commands.pipeline_command import app

if __name__ == "__main__":
    app(prog_name="run.py")
'''
"""Content of run.py."""

CONFIGURATION = """\
home = {home}
include-system-site-packages = false
version = {version}
"""
"""pyvenv.cfg, by which an interpreter finds the libraries next to it, wherever the archive was unpacked."""


class CannotPackage(ProxyError):
    """A required file or library is missing. The text names it."""


class WrittenFile(NamedTuple):
    """A written file and a description of its content."""

    path: Path
    size: int
    inside: str


def run(folder: Path, python: str | None = None) -> list[WrittenFile]:
    """Write the three files.

    Args:
        folder: target folder.
        python: path of the interpreter on the machines of the cluster; None for the path of this one.

    Raises:
        CannotPackage: a required file or library is missing. OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kernels = write_zip(folder / ZIP)
    libraries = _write_environment(folder / ENVIRONMENT, python or _base_python())
    (folder / PROGRAM).write_text(RUN)
    having = f"with {', '.join(kernels)} in C" if kernels else "without C kernels, for this installation has none"
    return [
        _written_file(folder / ZIP, f"this package, {having}"),
        _written_file(folder / ENVIRONMENT, ", ".join(libraries)),
        _written_file(folder / PROGRAM, "the jobs"),
    ]


def _written_file(path: Path, inside: str) -> WrittenFile:
    return WrittenFile(path, path.stat().st_size, inside)


def commands(folder: Path, python: str | None = None) -> list[str]:
    """Return instructions for running a job, for people."""
    where = python or _base_python()
    return [
        f"the machines need {where} ({_version()}); then, in {folder}:",
        "  spark-submit --master yarn --deploy-mode cluster \\",
        f"    --py-files {ZIP} --archives {ENVIRONMENT}#environment \\",
        "    --conf spark.pyspark.python=./environment/bin/python \\",
        f"    {PROGRAM} audit --in AUDIT_DIR --out LAKE",
        f"in client mode the driver needs it too: mkdir environment && tar -xzf {ENVIRONMENT} -C environment",
    ]


# The zip


def write_zip(path: Path) -> list[str]:
    """Return the names of the kernels."""
    kernels = {}
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for name, data in _sources():
            _add(archive, name, data)
        for name, file in _kernel_files():
            inside = f"{name.replace('.', '/')}{zipped_kernels.SUFFIX}"
            data = file.read_bytes()
            kernels[name] = KernelEntry(inside, hashlib.sha256(data).hexdigest())
            _add(archive, inside, data)
        _add(archive, zipped_kernels.MANIFEST, zipped_kernels.manifest(kernels).encode())
    return [name.rpartition("._")[2] for name in kernels]


def _add(archive: ZipFile, name: str, data: bytes) -> None:
    entry = ZipInfo(name, EPOCH)
    entry.compress_type = ZIP_DEFLATED
    archive.writestr(entry, data)


def _sources() -> Iterator[tuple[str, bytes]]:
    for name, file in _below(PACKAGE, files(PACKAGE)):
        if name.endswith(".py") and not name.startswith(SCHEMAS):
            yield name, zipped_kernels.INIT_SOURCE.encode() if name == FIRST else file.read_bytes()
    for name, file in _below(SCHEMAS, specs.location()):
        if name.endswith(".json"):
            yield name, file.read_bytes()


def _below(name: str, folder: Traversable) -> Iterator[tuple[str, Traversable]]:
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        inside = f"{name}/{each.name}"
        if each.is_dir():
            yield from _below(inside, each)
        else:
            yield inside, each


def _kernel_files() -> Iterator[tuple[str, Path]]:
    for name in zipped_kernels.MODULES:
        spec = find_spec(name)
        if spec is not None and spec.origin is not None:
            yield name, Path(spec.origin)


# The environment


def _write_environment(path: Path, python: str) -> list[str]:
    """Write the environment. Return its libraries with their versions."""
    chosen = _needed()
    home = f"lib/{_version()}/site-packages"
    with tarfile.open(path, "w:gz", compresslevel=6) as archive:
        for name in ("python", "python3"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, python
            archive.addfile(link)
        configuration = CONFIGURATION.format(home=Path(python).parent, version=sys.version.split()[0]).encode()
        entry = tarfile.TarInfo("pyvenv.cfg")
        entry.size = len(configuration)
        archive.addfile(entry, io.BytesIO(configuration))
        for library in chosen:
            for inside, file in _files_of(library):
                archive.add(file, f"{home}/{inside}", recursive=False)
    return [f"{library.name} {library.version}" for library in chosen]


def _needed() -> list[metadata.Distribution]:
    """Return the installed libraries that jobs need, without Spark."""
    libraries: dict[str, metadata.Distribution] = {}
    waiting = [*_requirements(_distribution(ITSELF)), *((name, False) for name in LIBRARIES)]
    while waiting:
        name, is_conditional = waiting.pop()
        if name in libraries:
            continue
        try:
            libraries[name] = _distribution(name)
        except CannotPackage:
            if not is_conditional:
                raise
            continue
        waiting += _requirements(libraries[name])
    return [libraries[name] for name in sorted(libraries)]


def _distribution(name: str) -> metadata.Distribution:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise CannotPackage(f"{name} is not installed here: install kafka-share-proxy[spark]") from None


def _requirements(library: metadata.Distribution) -> Iterator[tuple[str, bool]]:
    """True for those with a condition (a platform, a version of Python). Extras are skipped."""
    for text in library.requires or ():
        requirement, _, condition = text.partition(";")
        name = re.match(r"[A-Za-z0-9._-]+", requirement.strip())
        if name is not None and "extra" not in condition:
            yield re.sub(r"[-_.]+", "-", name[0]).lower(), bool(condition)


def _files_of(library: metadata.Distribution) -> Iterable[tuple[str, Path]]:
    """Yield the installed files except commands and compiled Python."""
    if library.files is None:
        raise CannotPackage(f"{library.name} was installed without a list of its files: install it with pip")
    for file in library.files:
        if ".." not in file.parts and "__pycache__" not in file.parts and not file.is_absolute():
            where = Path(str(library.locate_file(file)))
            if where.is_file():
                yield file.as_posix(), where


def _base_python() -> str:
    installed = Path(sys.base_prefix) / "bin" / _version()
    return str(installed if installed.exists() else Path(sys.executable).resolve())


def _version() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"
