"""Versions of installed distributions. importlib.metadata would load parsers of mail, zip files and CSV: 1.3 MiB."""

from __future__ import annotations

import sys
from pathlib import Path

DISTRIBUTION = "kafka-share-proxy"
"""Name of this distribution and of its command."""
FIELD = "Version: "
"""Beginning of the line of the metadata with the version."""


def version(distribution: str) -> str:
    """Return the version; empty if no folder of the path has this distribution."""
    name = distribution.replace("-", "_")
    for folder in map(Path, sys.path):
        for place in (f"{name}-*.dist-info/METADATA", f"{name}.egg-info/PKG-INFO", f"{name}-*.egg-info/PKG-INFO"):
            for file in folder.glob(place):
                lines = file.read_text("utf-8").splitlines()
                return next((line[len(FIELD) :] for line in lines if line.startswith(FIELD)), "")
    return ""
