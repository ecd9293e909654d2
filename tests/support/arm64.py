"""Python for arm64 on a machine of another kind: Debian's packages, unpacked into the user's cache, run by QEMU.

Nothing is installed, and apt's own settings are not changed. C is compiled by Zig, whose package for Python holds
headers and symbols of glibc for other machines.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_share_proxy.localkafka.jars import cache_folder, exclusive

FETCH_S, RUN_S = 300, 900
ZIG = "ziglang==0.17.1"
GLIBC = "2.28"
"""Version that the wheels of a release are built for (manylinux_2_28)."""
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
EMULATOR_SUITE, EMULATOR = "bookworm", "usr/bin/qemu-aarch64-static"
SETTINGS = """\
Dir::State "{folder}/state";
Dir::State::status "{folder}/state/status";
Dir::Cache "{folder}/cache";
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "-";
APT::Architecture "{architecture}";
APT::Architectures "{architecture}";
APT::Sandbox::User "root";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
"""


def missing() -> str:
    """Return why arm64 cannot be emulated here, or an empty text."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"emulation is for Linux on x86-64, this is {sys.platform} on {platform.machine()}"
    lacks = [tool for tool in ("apt-get", "dpkg-deb") if shutil.which(tool) is None]
    if lacks:
        return f"Debian's packages are unpacked by {', '.join(lacks)}, which this machine has not"
    return "" if _mirror() else "apt has no source of the component main: no Debian, or no sources"


@dataclass(frozen=True)
class Python:
    """A Python for arm64 in a folder, without packages. `command` is a program of this machine."""

    version: str
    root: Path
    command: Path

    @classmethod
    def create(cls, suite: str, version: str, folder: Path) -> Python:
        """Make an environment, as venv would do. Its `python` may be started by any program."""
        root = unpacked(suite, "arm64", (f"python{version}", f"libpython{version}-dev"))
        emulator = unpacked(EMULATOR_SUITE, "amd64", ("qemu-user-static",)) / EMULATOR
        command = folder / "bin" / "python"
        command.parent.mkdir(parents=True)
        (folder / "lib" / f"python{version}" / "site-packages").mkdir(parents=True)
        (folder / "pyvenv.cfg").write_text(f"home = {root}/usr/bin\nversion = {version}\n")
        command.write_text(f'#!/bin/sh\nexec {emulator} -L {root} -0 {command} {root}/usr/bin/python{version} "$@"\n')
        command.chmod(0o755)
        return cls(version, root, command)

    def run(self, *words: str, cwd: Path | None = None, **environment: str) -> str:
        """Return what the Python prints. It must end with status 0."""
        return run([str(self.command), *words], cwd, environment)

    def install(self, *requirements: str) -> None:
        """Let pip, run by this Python, choose and install wheels."""
        quiet = ["--quiet", "--disable-pip-version-check", "--prefer-binary", "--no-compile"]  # compiling takes minutes
        run([sys.executable, "-m", "pip", "--python", str(self.command), "install", *quiet, *requirements])

    def add(self, *requirements: str) -> None:
        """Install wheels for arm64 by pip of this machine, which takes seconds instead of minutes."""
        site = self.command.parents[1] / "lib" / f"python{self.version}" / "site-packages"
        target = self.command.parents[1] / "added"
        quiet = ["--quiet", "--disable-pip-version-check", "--no-compile", "--only-binary", ":all:"]
        chosen = ["--implementation", "cp", "--python-version", self.version, "--target", str(target)]
        chosen += [f"--abi={tag}" for tag in (f"cp{self.version.replace('.', '')}", "abi3", "none")]
        chosen += [f"--platform={tag}_aarch64" for tag in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")]
        run([sys.executable, "-m", "pip", "install", *quiet, *chosen, *requirements])
        (site / "added.pth").write_text(f"{target}\n")

    def wheel(self, source: Path, folder: Path) -> Path:
        """Build a wheel of the source with this Python. Return its path."""
        tools, headers = _tools(), folder / "headers"
        # Debian's pyconfig.h includes that of the machine, which Zig would look for in folders of this machine.
        machine = Path("aarch64-linux-gnu") / f"python{self.version}"
        (headers / machine).parent.mkdir(parents=True)
        (headers / machine).symlink_to(self.root / "usr" / "include" / machine)
        compiler = f"{tools}/ziglang/zig cc -target aarch64-linux-gnu.{GLIBC}"
        self.run(
            "-c", "import build_backend, sys; build_backend.build_wheel(sys.argv[1])", str(folder), cwd=source,
            CC=compiler, LDSHARED=f"{compiler} -shared", PYTHONPATH=f"{tools}:{source}/deploy/release",
            CFLAGS=f"-I{headers} -I{self.root}/usr/include/python{self.version}",
        )  # fmt: skip
        (wheel_path,) = folder.glob("*.whl")
        return wheel_path


def run(command: Sequence[str], cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **(environment or {})},
        capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def unpacked(suite: str, architecture: str, packages: tuple[str, ...]) -> Path:
    """Return a folder with these packages of Debian and all that they depend on."""
    folder = _cache(f"{suite}-{architecture}-{packages[0]}")
    root = folder / "root"
    with exclusive(folder):
        if not root.exists():
            _download(folder, suite, architecture, packages)
            unpacking = folder / "unpacking"
            shutil.rmtree(unpacking, ignore_errors=True)
            for package in sorted((folder / "cache" / "archives").glob("*.deb")):
                unpacking.mkdir(exist_ok=True)
                run(["dpkg-deb", "-x", str(package), str(unpacking)])
            if not (unpacking / "lib").exists():
                (unpacking / "lib").symlink_to("usr/lib")  # trixie has the link in another package
            shutil.rmtree(folder / "cache")
            unpacking.rename(root)
    return root


def _download(folder: Path, suite: str, architecture: str, packages: tuple[str, ...]) -> None:
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "state" / "status").touch()
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    (folder / "sources.list").write_text(f"deb {signed}{_mirror()} {suite} main\n")
    settings = folder / "apt.conf"
    settings.write_text(SETTINGS.format(folder=folder, architecture=architecture))
    for words in (["update"], ["install", "--yes", "--download-only", "--no-install-recommends", *packages]):
        run(["apt-get", "--quiet", *words], environment={"APT_CONFIG": str(settings)})


@functools.cache
def _mirror() -> str:
    """Return where this machine has Debian's packages from; an empty text if it is not Debian."""
    release = platform.freedesktop_os_release()
    if release.get("ID") != "debian":
        return ""
    command = ["apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"]
    for line in run(command).splitlines():
        suite, component, address = line.split(maxsplit=2)
        if (suite, component) == (release.get("VERSION_CODENAME"), "main"):
            return address
    return ""


def _tools() -> Path:
    """Return a folder with Zig, and with setuptools as in this environment."""
    setuptools = f"setuptools=={importlib.metadata.version('setuptools')}"
    folder = _cache(f"{ZIG}-{setuptools}")
    with exclusive(folder):
        if not (folder / "done").exists():
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
            run([*pip, "--target", str(folder), ZIG, setuptools])
            (folder / "done").touch()
    return folder


def _cache(name: str) -> Path:
    return cache_folder().parent / "arm64" / name
