"""Formatted storage of Kafka's nodes: what its tool wrote for one is copied for others of the same kind.

The tool is a separate Java process, with 0.8 to 1.1 s of CPU. Only the file with the ids differs between two nodes.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Hashable
from pathlib import Path

KINDS_MAX = 16
"""Number of kinds of nodes whose storage is kept in memory, a kilobyte each."""
DECISIVE = ("log.dirs", "metadata.log.dir", "unstable.feature.versions.enable")
"""Settings of a node that change what is written, or where."""
_IDS = "meta.properties"

_files_by_kind: dict[Hashable, dict[str, bytes]] = {}


def keep(kind: Hashable, data: Path) -> None:
    """Keep what the tool has written to the folder, for other nodes of this kind."""
    if len(_files_by_kind) < KINDS_MAX and (data / _IDS).exists():
        files = (path for path in data.rglob("*") if path.is_file())
        _files_by_kind[kind] = {str(path.relative_to(data)): path.read_bytes() for path in files}


def copy(kind: Hashable, data: Path, cluster_id: str, node_id: int) -> bool:
    """Write the files of a node of this kind, with its own ids. Return False if none was kept."""
    if kind not in _files_by_kind:
        return False
    for name, content in _files_by_kind[kind].items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_bytes(content)
    ids = {"cluster.id": cluster_id, "node.id": str(node_id), "directory.id": _directory_id()}
    text = (data / _IDS).read_text()
    for key, value in ids.items():
        text = re.sub(rf"^{re.escape(key)}=.*$", f"{key}={value}", text, flags=re.MULTILINE)
    (data / _IDS).write_text(text)
    return True


def _directory_id() -> str:
    """Return a random id as Kafka writes them: command lines could take one that begins with - for a flag."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text
