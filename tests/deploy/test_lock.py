"""pylock.toml: every dependency of the package, for every machine and Python that wheels are built for."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.pylock import Package, PackageWheel, Pylock
from packaging.requirements import Requirement
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).resolve().parents[2]
LOCK = CHECKOUT / "pylock.toml"
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
MACHINES = ("x86_64", "aarch64")
PYTHONS = ((3, 11), (3, 12), (3, 13), (3, 14))


def lock() -> Pylock:
    """Return the lock file. Raises PylockValidationError if it is not one."""
    return Pylock.from_dict(tomllib.loads(LOCK.read_text()))


def lock_command() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lock", CHECKOUT / "deploy" / "release" / "lock.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def selected(machine: str, python: tuple[int, int]) -> list[tuple[Package, Any]]:
    """Return what an installer would install. Raises PylockSelectError if a package has no wheel for the machine."""
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(28, 16, -1)] + [f"manylinux2014_{machine}"]
    interpreter = f"cp{python[0]}{python[1]}"
    tags = [*cpython_tags(python, platforms=platforms), *compatible_tags(python, interpreter, platforms)]
    version = ".".join(map(str, python))
    environment = {
        "python_version": version, "python_full_version": f"{version}.0", "implementation_name": "cpython",
        "platform_python_implementation": "CPython", "sys_platform": "linux", "os_name": "posix",
        "platform_system": "Linux", "platform_machine": machine,
    }  # fmt: skip
    return list(lock().select(environment=environment, tags=tags))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
def test_every_dependency_has_a_wheel_of_an_accepted_version(machine: str, python: tuple[int, int]) -> None:
    chosen = {package.name: package.version for package, wheel in selected(machine, python)}
    for text in PROJECT["dependencies"]:
        requirement = Requirement(text)
        version = chosen[canonicalize_name(requirement.name)]
        assert version is not None
        assert version in requirement.specifier, text


def test_files_are_wheels_with_hashes_and_paths_that_hold_everywhere() -> None:
    for package in lock().packages:
        assert package.index is None
        assert package.sdist is None
        assert package.wheels, package.name
        for wheel in package.wheels:
            assert isinstance(wheel, PackageWheel)
            assert wheel.url is None
            assert wheel.path is not None
            assert re.fullmatch(r"wheels/[\w.+-]+\.whl", wheel.path)
            assert re.fullmatch(r"[0-9a-f]{64}", wheel.hashes["sha256"])
            assert wheel.size


def test_lock_names_no_index_and_no_folder_of_a_machine() -> None:
    text = LOCK.read_text()
    assert "://" not in text
    assert not re.search(r'"/\w', text)


def test_what_uv_resolves_is_written_without_urls_and_without_other_systems() -> None:
    host = "https://index.example/files/"
    names = (
        "a-1.0-py3-none-any.whl",
        "a-1.0-cp312-cp312-win_amd64.whl",
        "a-1.0-cp313-cp313t-manylinux_2_28_x86_64.whl",
        "a-1.0-pp311-pypy311_pp73-manylinux_2_28_x86_64.whl",
        "a-1.0-cp311-abi3-macosx_11_0_arm64.whl",
    )
    wheels = [{"url": host + name, "size": 5, "hashes": {"sha256": "ab" * 32}} for name in names]
    resolved = {
        "packages": [
            {"name": "a", "version": "1.0", "wheels": wheels},
            {"name": "w", "version": "2", "marker": "sys_platform == 'win32'", "wheels": wheels[:1]},
        ]
    }
    pylock = Pylock.from_dict(tomllib.loads("".join(lock_command().written(resolved))))
    (package,) = pylock.packages
    assert package.wheels is not None
    assert [wheel.path for wheel in package.wheels] == [f"wheels/{names[0]}", f"wheels/{names[4]}"]


def test_requirements_for_pip_have_the_same_versions_markers_and_hashes() -> None:
    lines = list(lock_command().requirements(tomllib.loads(LOCK.read_text())))
    for package, line in zip(lock().packages, lines, strict=True):
        requirement, *hashes = line.split(" --hash=")
        read = Requirement(requirement)
        assert (canonicalize_name(read.name), str(read.specifier)) == (package.name, f"=={package.version}")
        assert read.marker == package.marker
        assert package.wheels is not None
        assert [each.strip() for each in hashes] == [f"sha256:{wheel.hashes['sha256']}" for wheel in package.wheels]
