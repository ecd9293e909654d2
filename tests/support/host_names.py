"""Programs that see other host names: each runs in its own mount namespace, with its own /etc/hosts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

SCRIPT = 'mount --bind "$0" /etc/hosts && exec "$@"'


class HostNames:
    """Names that all have one address."""

    def __init__(self, folder: Path, address: str, names: Iterable[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "hosts"
        self._file.write_text(f"127.0.0.1 localhost\n{address} {' '.join(names)}\n")

    def command(self, command: Sequence[str]) -> list[str]:
        """The command line that runs another one with these names."""
        return [*namespace(), "sh", "-c", SCRIPT, str(self._file), *command]


def namespace() -> list[str]:
    """The command that runs another one in a mount namespace."""
    return ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]


def need_namespaces() -> None:
    """Skip the test if the machine allows no mount namespaces."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare on this machine")
    tried = subprocess.run([*namespace(), "mount", "--bind", "/etc/hosts", "/etc/hosts"], capture_output=True)
    if tried.returncode:
        pytest.skip(f"no mount namespaces: {tried.stderr.decode().strip()}")
