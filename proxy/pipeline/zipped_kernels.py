"""The C kernels, where this package is in a zip that spark-submit ships with `--py-files` (pipeline/README.md rule 50).

Python imports no extension module out of a zip. So the zip that `pipeline package` makes names those it has, with their
checksums; one is written to a private file when it is first imported, loaded, and taken away again. Where that cannot
be, the twin in Python takes over, as where no compiler was at hand, and the log says so.
"""

from __future__ import annotations

import hashlib
import json
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from zipimport import zipimporter

MODULES = ("proxy.wire._batches", "proxy.wire._record_positions", "proxy.views.kernel._slicing")
"""The kernels that jobs use."""
MANIFEST = "proxy/pipeline/kernels.json"
"""In the zip: {"platform": as sysconfig names it, "kernels": {module: [file, sha256]}}."""
SUFFIX = ".abi3.so"


class KernelEntry(NamedTuple):
    """One extension module of the zip."""

    file: str
    sha256: str


def manifest(kernels: Mapping[str, KernelEntry]) -> str:
    """What `ZippedKernels` reads."""
    return json.dumps({"platform": sysconfig.get_platform(), "kernels": kernels}, indent=1)


INSTALLING = "from proxy.pipeline import zipped_kernels\n\nzipped_kernels.install()\n"
"""What stands in the zip as `proxy/pipeline/__init__.py`, which is loaded before any module of jobs."""


def archive() -> zipimporter | None:
    """The zip that this package is in; None: it is installed."""
    loader = __spec__.loader if __spec__ is not None else None
    return loader if isinstance(loader, zipimporter) else None


def install() -> None:
    """Have kernels found from now on, if this package is in a zip."""
    loader = archive()
    if loader is not None and not any(isinstance(each, ZippedKernels) for each in sys.meta_path):
        sys.meta_path.append(ZippedKernels(loader))


class ZippedKernels:
    """Finds them, after every other finder had its turn."""

    def __init__(self, archive: zipimporter) -> None:
        self._archive = archive

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Of a kernel. None: it is none, or cannot be had, which the log then says."""
        if name not in MODULES:
            return None
        try:
            file = self._written(name)
        except (OSError, ValueError, KeyError) as error:
            _note(name, str(error))
            return None
        return spec_from_file_location(name, file, loader=_OnceLoader(name, str(file)))

    def _written(self, name: str) -> Path:
        """A private file with this kernel. Raises OSError; ValueError: it is not for here."""
        listed = json.loads(self._read(MANIFEST))
        if name not in listed["kernels"]:
            raise ValueError("the installation that packaged this had none")
        if listed["platform"] != sysconfig.get_platform():
            raise ValueError(f"it was built for {listed['platform']}, and this is {sysconfig.get_platform()}")
        entry = KernelEntry(*listed["kernels"][name])
        data = self._read(entry.file)
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise ValueError(f"{entry.file} is damaged: its checksum is wrong")
        with tempfile.NamedTemporaryFile(prefix="kafka-share-proxy-", suffix=SUFFIX, delete=False) as file:
            file.write(data)
        return Path(file.name)

    def _read(self, inside: str) -> bytes:
        return self._archive.get_data(f"{self._archive.archive}/{inside}")


class _OnceLoader(ExtensionFileLoader):
    """Loads a file that nobody needs any more once it is mapped into memory."""

    def create_module(self, spec: ModuleSpec) -> Any:
        try:
            return super().create_module(spec)
        except ImportError as error:
            _note(spec.name, str(error))
            raise
        finally:
            Path(self.path).unlink(missing_ok=True)


def _note(name: str, reason: str) -> None:
    text = f"kafka-share-proxy: {name}: {reason}; the same in Python takes over, which is several times slower"
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - where executors' logs are read
