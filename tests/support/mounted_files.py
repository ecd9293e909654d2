"""ConfigMaps and Secrets as the kubelet mounts them: `KEY -> ..data/KEY`, `..data -> ..VERSION`, swapped at once."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from itertools import count
from pathlib import Path


class MountedFiles:
    """Folder of one volume. A reader sees all files of one version, never a part of a file."""

    def __init__(self, folder: Path, content: Mapping[str, str]) -> None:
        self.folder = folder
        self._versions = count(1)
        folder.mkdir(parents=True)
        self.write(content)

    def write(self, content: Mapping[str, str]) -> None:
        """Replace all files: write a new version, swap the symbolic link, remove the version before."""
        before = self._current()
        version = self.folder / f"..version-{next(self._versions)}"
        version.mkdir()
        for key, text in content.items():
            (version / key).write_text(text)
        link = self.folder / "..data_tmp"
        link.symlink_to(version.name)
        link.replace(self.folder / "..data")
        self._link_keys(content)
        if before is not None:
            shutil.rmtree(before)

    def _current(self) -> Path | None:
        link = self.folder / "..data"
        return self.folder / link.readlink() if link.is_symlink() else None

    def _link_keys(self, content: Mapping[str, str]) -> None:
        for path in self.folder.iterdir():
            if not path.name.startswith("..") and path.name not in content:
                path.unlink()
        for key in content:
            if not (self.folder / key).is_symlink():
                (self.folder / key).symlink_to(f"..data/{key}")
