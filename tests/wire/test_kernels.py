"""Which kernels are used, and the reasons for the others."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from kafka_share_proxy.app import build_info
from kafka_share_proxy.wire import kernels
from kafka_share_proxy.wire.records import batches

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def nothing_chosen_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_chosen", {})


def extension(version: int | None) -> ModuleType:
    module = ModuleType("_kernel")
    if version is not None:
        module.VERSION = version  # type: ignore[attr-defined]
    return module


def test_an_extension_of_this_source_is_used() -> None:
    assert kernels.choose("wire._kernel", extension(3), 3) == "c"
    assert kernels.chosen() == {"wire._kernel": ""}


@pytest.mark.parametrize("version", [2, 4, None])
def test_an_extension_of_another_source_is_replaced_and_the_reason_says_what_to_do(version: int | None) -> None:
    assert kernels.choose("wire._kernel", extension(version), 3) == "python"
    reason = kernels.chosen()["wire._kernel"]
    assert f"another source (version {version or 0}, needed is 3)" in reason
    assert "pip install --force-reinstall" in reason


def test_a_missing_extension_is_distinguished_from_one_that_cannot_be_loaded() -> None:
    kernels.choose("wire._never_built", None, 1)
    kernels.choose("wire.records.batches", None, 1)  # there, as a file that is not loadable would be
    assert kernels.chosen() == {
        "wire._never_built": kernels.NOT_BUILT,
        "wire.records.batches": kernels.NOT_LOADED,
    }


def test_every_extension_is_chosen_by_a_module_that_version_loads() -> None:
    """A kernel that no module reports would be missing in `--version`."""
    program = (
        "import importlib\n"
        "from kafka_share_proxy.app import build_info\n"
        "from kafka_share_proxy.wire import kernels\n"
        "for name in build_info.KERNEL_USERS: importlib.import_module(name)\n"
        "print(*sorted(kernels.chosen()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    declared = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    assert done.stdout.split() == sorted(each["name"].removeprefix("kafka_share_proxy.") for each in declared)


def test_kernels_with_the_same_reason_are_listed_together() -> None:
    kernels.choose("wire._one", extension(1), 2)
    kernels.choose("views.kernel._two", extension(1), 2)
    kernels.choose("audit._three", extension(2), 2)
    (names,) = build_info.fallbacks(kernels.chosen()).values()
    assert names == ["two", "one"]


def test_the_kernels_of_this_environment_are_those_that_are_used() -> None:
    assert batches.KERNEL in ("c", "python")
    assert (batches._batches is not None and batches._batches.VERSION == batches.BUILT_VERSION) == (
        batches.KERNEL == "c"
    )
