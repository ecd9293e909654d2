"""Importer of the C kernels if this package is in a zip, shipped by spark-submit with `--py-files`.

See pipeline/README.md rule 50.

Python cannot import an extension module from a zip. At the first import, a kernel is written to a private file, loaded,
and the file is deleted. If that fails, the Python fallback is used and the reason is logged.
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

MODULES = (
    "kafka_share_proxy.wire.records._batches",
    "kafka_share_proxy.wire.records._record_positions",
    "kafka_share_proxy.views.kernel._slicing",
)
MANIFEST = "kafka_share_proxy/pipeline/kernels.json"
"""Path in the zip of the list of kernels: {"platform": as sysconfig names it, "kernels": {module: [file, sha256]}}."""
SUFFIX = ".abi3.so"


class KernelEntry(NamedTuple):
    """One extension module of the zip."""

    file: str
    sha256: str


def manifest(kernels: Mapping[str, KernelEntry]) -> str:
    return json.dumps({"platform": sysconfig.get_platform(), "kernels": kernels}, indent=1)


INIT_SOURCE = "from kafka_share_proxy.pipeline import zipped_kernels\n\nzipped_kernels.install()\n"
"""Content of `pipeline/__init__.py` in the zip, which is loaded before any module of jobs."""


def archive() -> zipimporter | None:
    loader = __spec__.loader if __spec__ is not None else None
    return loader if isinstance(loader, zipimporter) else None


def install() -> None:
    loader = archive()
    if loader is not None and not any(isinstance(each, ZippedKernels) for each in sys.meta_path):
        sys.meta_path.append(ZippedKernels(loader))


class ZippedKernels:
    """Finder of the kernels in a zip, called after all other finders."""

    def __init__(self, archive: zipimporter) -> None:
        self._archive = archive

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None for other modules, and, with a log line, if the kernel is unusable."""
        if name not in MODULES:
            return None
        try:
            file = self._extracted(name)
        except (OSError, ValueError, KeyError) as error:
            _note(name, str(error))
            return None
        return spec_from_file_location(name, file, loader=_OnceLoader(name, str(file)))

    def _extracted(self, name: str) -> Path:
        """Write a kernel to a private file. Raises OSError, and ValueError if it does not fit this machine."""
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
    """Loader that deletes its file after the import: the module is mapped into memory then."""

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
