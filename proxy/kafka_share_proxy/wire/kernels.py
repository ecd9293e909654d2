"""Kernels of the hot paths: in C where they can be used, otherwise their Python fallbacks, and why.

Rule: wire/README.md 19. A module that uses a kernel imports the extension and calls `choose`, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from types import ModuleType
from typing import Literal

PACKAGE = "kafka_share_proxy"
BUILD_AGAIN = (
    "run `pip install --force-reinstall --no-deps kafka-share-proxy`, or `deploy/bootstrap.py test` in a checkout"
)
NOT_BUILT = (
    "it was not built, because there was no C compiler: install a wheel, or a compiler and then the package again"
)
NOT_LOADED = f"it is not loadable on this machine: {BUILD_AGAIN}"

_chosen: dict[str, str] = {}


def choose(name: str, extension: ModuleType | None, version: int) -> Literal["c", "python"]:
    """Return which implementation of a kernel to use, and keep the reason for `chosen`.

    Args:
        name: the extension, relative to the package.
        extension: None if its import failed.
        version: the `VERSION` of an extension that was built from the source of this release.
    """
    built = None if extension is None else getattr(extension, "VERSION", 0)
    if built is None:
        _chosen[name] = NOT_BUILT if find_spec(f"{PACKAGE}.{name}") is None else NOT_LOADED
    elif built != version:
        _chosen[name] = f"it was built from another source (version {built}, needed is {version}): {BUILD_AGAIN}"
    else:
        _chosen[name] = ""
    return "python" if _chosen[name] else "c"


def chosen() -> Mapping[str, str]:
    """Return why the Python fallback is used, by kernel of all modules loaded so far. Empty text: it is in C."""
    return _chosen
