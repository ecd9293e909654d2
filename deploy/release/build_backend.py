"""Build backend (PEP 517): that of setuptools, whose wheels and sdists get the same bytes each time, and more content.

A wheel also has the commit (for `kafka-share-proxy --version`) and a bill of materials (PEP 770), an sdist the commit.
The time of every file is SOURCE_DATE_EPOCH if it is set, and else that of the commit.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

sys.path.insert(0, str(Path(__file__).parent))
import bill_of_materials

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

PACKAGE = "kafka_share_proxy"
IN_SDIST, IN_WHEEL = f"proxy/{PACKAGE}/COMMIT", f"{PACKAGE}/COMMIT"
"""The file with the commit and its time, read by app/build_info.py."""
EGG_INFO = ".egg-info"
"""Folder of setuptools, whose list of files depends on whether it was there before."""
EARLIEST = 315_532_800
"""1980-01-01, the first time that a zip can hold."""
FILE_MODE, FOLDER_MODE, PROGRAM_MODE = 0o644, 0o755, 0o755
GIT_S = 30


class Source(NamedTuple):
    """Commit and time of the files that are built."""

    commit: str
    """Empty if unknown."""
    epoch: int

    @property
    def text(self) -> bytes:
        return f"{self.commit or 'unknown'} {self.epoch}\n".encode()


def build_wheel(
    wheel_directory: str, config_settings: Mapping[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Build a wheel. Return its file name."""
    source = found_source()
    with _same_each_time(source):
        name = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    rewrite_wheel(Path(wheel_directory) / name, source)
    return name


def build_sdist(sdist_directory: str, config_settings: Mapping[str, Any] | None = None) -> str:
    """Build an sdist. Return its file name."""
    source = found_source()
    with _same_each_time(source):
        name = build_meta.build_sdist(sdist_directory, config_settings)
    rewrite_sdist(Path(sdist_directory) / name, source)
    return name


def found_source() -> Source:
    """Return the commit of the checkout, or the one that the sdist has, and the time for all files."""
    recorded = Path(IN_SDIST)
    if recorded.is_file():
        commit, epoch = recorded.read_text().split()
    elif Path(".git").exists():
        commit, _, epoch = _git("log", "-1", "--format=%H %ct").partition(" ")
        if commit and _git("status", "--porcelain", "--untracked-files=no"):
            commit += "+changes"
    else:
        commit = epoch = ""
    return Source(commit, max(int(os.environ.get("SOURCE_DATE_EPOCH") or epoch or EARLIEST), EARLIEST))


def _git(*words: str) -> str:
    """Return the output, or an empty text if git fails."""
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, timeout=GIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


@contextmanager
def _same_each_time(source: Source) -> Iterator[None]:
    """Set what compiler and setuptools read: the time, an empty build folder, kernels without paths of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        extra = Path(folder) / "setup.cfg"
        extra.write_text(f"[build]\nbuild_base = {folder}/build\n")
        # setuptools replaces the interpreter's own flags, which optimize, by CFLAGS.
        compiler_flags = f"{sysconfig.get_config_var('CFLAGS') or ''} {os.environ.get('CFLAGS', '')}".strip()
        flags = f"{compiler_flags} -g0"  # sections for debuggers name the folder
        variables = {"SOURCE_DATE_EPOCH": str(source.epoch), "DIST_EXTRA_CONFIG": str(extra), "CFLAGS": flags}
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def rewrite_wheel(path: Path, source: Source) -> None:
    """Add commit and bill of materials, and write all entries in one order with one time."""
    with ZipFile(path) as archive:
        entries = {info.filename: archive.read(info) for info in archive.infolist() if not info.is_dir()}
    (metadata,) = (name for name in entries if name.endswith(".dist-info/METADATA"))
    dist_info = metadata.rpartition("/")[0]
    record = f"{dist_info}/RECORD"
    del entries[record]
    entries[IN_WHEEL] = source.text
    bill = bill_of_materials.written(entries, metadata, source.commit, source.epoch)
    entries[f"{dist_info}/sboms/{PACKAGE}.cdx.json"] = bill
    entries = dict(sorted(entries.items(), key=lambda entry: (dist_info in entry[0], entry[0])))  # metadata at the end
    lines = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in entries.items()]
    entries[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    moment = time.gmtime(source.epoch)[:6]

    def write(file: io.BufferedWriter) -> None:
        with ZipFile(file, "w", ZIP_DEFLATED) as archive:
            for name, data in entries.items():
                info = ZipInfo(name, moment)
                info.compress_type, info.create_system = ZIP_DEFLATED, 3
                info.external_attr = (0o100000 | (PROGRAM_MODE if name.endswith(".so") else FILE_MODE)) << 16
                archive.writestr(info, data)

    _replace(path, write)


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def rewrite_sdist(path: Path, source: Source) -> None:
    """Add the commit, and write all entries in one order with one time and owner."""
    with tarfile.open(path) as archive:
        members = [(member, _content(archive, member)) for member in archive.getmembers()]
    recorded = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{IN_SDIST}")
    recorded.size = len(source.text)
    members = [
        (member, data) for member, data in members if member.name != recorded.name and EGG_INFO not in member.name
    ]
    members.append((recorded, source.text))

    def write(file: io.BufferedWriter) -> None:
        with (
            gzip.GzipFile("", "wb", 9, file, source.epoch) as compressed,
            tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for member, data in sorted(members, key=lambda entry: entry[0].name):
                member.uid = member.gid = 0
                member.uname = member.gname = ""
                member.mtime, member.pax_headers = source.epoch, {}
                is_program = member.isdir() or member.mode & 0o100
                member.mode = FOLDER_MODE if is_program else FILE_MODE
                archive.addfile(member, None if data is None else io.BytesIO(data))

    _replace(path, write)


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes | None:
    file = archive.extractfile(member) if member.isfile() else None
    return None if file is None else file.read()


def _replace(path: Path, write: Callable[[io.BufferedWriter], None]) -> None:
    made = path.with_suffix(".new")
    with made.open("wb") as file:
        write(file)
    made.replace(path)
