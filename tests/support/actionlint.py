"""actionlint, the linter of GitHub workflows: on PATH, or else built with Go in the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka.jars import cache_folder, exclusive

from tests.support.programs import QUICK_BUILD

VERSION = "v1.7.12"
BUILD_S = 240


def need() -> Path:
    """Return the path of actionlint, after building it if that is needed, or skip the test."""
    on_path = shutil.which("actionlint")
    if on_path is not None:
        return Path(on_path)
    folder = cache_folder().parent / "actionlint" / VERSION
    go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
    with exclusive(folder):
        if not (folder / "actionlint").exists():
            if go is None:
                pytest.skip("there is neither actionlint nor Go on this machine")
            command = [go, "install", *QUICK_BUILD, f"github.com/rhysd/actionlint/cmd/actionlint@{VERSION}"]
            environment = {**os.environ, "GOBIN": str(folder)}
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False
            )
            assert done.returncode == 0, done.stderr
    return folder / "actionlint"
