"""The image of deploy/Containerfile: built with Buildah on bases made of Debian's packages, run with a read-only root.

No image is pulled. The bases are kept as archives in the user's cache. Storage of Buildah is a folder of the caller.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafka_share_proxy.localkafka.jars import cache_folder, exclusive

CHECKOUT = Path(__file__).resolve().parents[2]
CONTAINERFILE = CHECKOUT / "deploy" / "Containerfile"
IMAGE = "localhost/kafka-share-proxy:test"
TOOLS = ("buildah", "debootstrap", "apt-get", "tar", "unshare", "setpriv", "chroot")
PACKAGES = {"run": "python3,ca-certificates", "build": "python3,python3-venv,python3-dev,gcc,libc6-dev,ca-certificates"}
"""Packages of the base of the image, and of the base that the build runs in."""
MADE_S = 900
USER = "10001:10001"
CA_IN_IMAGE = "/etc/pip-ca.pem"
KEPT = ("index-url", "extra-index-url", "trusted-host", "timeout")
SANDBOX = """
set -e
root=$1; shift
mount --bind "$root" "$root"
while [ "$1" != -- ]; do mount --bind "$1" "$root$2"; mount -o remount,bind,ro "$root$2"; shift 2; done
shift
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount -t tmpfs -o mode=1777,nosuid,nodev,noexec,size=64m tmpfs "$root/dev/shm"
mount -o remount,bind,ro "$root"
exec setpriv --no-new-privs chroot --userspec="$USERSPEC" --groups= "$root" env -i "$@"
"""
"""Script that mounts what a container has, makes the root read-only, and becomes the command as the image's user."""


def missing() -> str:
    """Return what this machine lacks to build and run the image; empty if nothing."""
    lacks = [f"no {tool}" for tool in TOOLS if shutil.which(tool) is None]
    return ", ".join([*lacks, *([] if os.geteuid() == 0 else ["not root"])])


def base(kind: str) -> Path:
    """Return an archive of Debian's packages, made with debootstrap from the mirror that apt uses."""
    mirror, release = _mirror()
    folder = cache_folder().parent / "images"
    archive = folder / f"{release}-{kind}.tar"
    with exclusive(folder):
        if not archive.exists():
            root, partial = folder / f"{release}-{kind}", folder / f"{release}-{kind}.partial"
            shutil.rmtree(root, ignore_errors=True)
            include = f"--include={PACKAGES[kind]}"
            run("debootstrap", "--variant=minbase", include, release, str(root), mirror)
            for cache in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
                shutil.rmtree(root / cache, ignore_errors=True)
            run("tar", "-C", str(root), "-cf", str(partial), ".")
            partial.rename(archive)
            shutil.rmtree(root)
    return archive


def _mirror() -> tuple[str, str]:
    lines = run("apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)", "Created-By: Packages").splitlines()
    site, release = next(line.split() for line in lines if "-" not in line.split()[1])
    return site, release


def run(*command: str) -> str:
    """Return what a command prints; it must end with status 0."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=MADE_S, check=False)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


class Builder:
    """Buildah, with its storage in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._buildah = ["buildah", "--root", str(folder / "storage"), "--runroot", str(folder / "run")]
        self._buildah += ["--storage-driver", "vfs"]

    def buildah(self, *words: str) -> str:
        return run(*self._buildah, *words)

    def build(self) -> None:
        """Build the bases and the image."""
        bases = {"BASE": self._import("run"), "BUILD_BASE": self._import("build")}
        arguments = [word for name, image in bases.items() for word in ("--build-arg", f"{name}={image}")]
        ignored = ["--ignorefile", f"{CONTAINERFILE}.dockerignore"]
        self.buildah(
            "bud", "--isolation", "chroot", *arguments, *self._index(), *ignored, "--tag", IMAGE, "--file",
            str(CONTAINERFILE), str(CHECKOUT),
        )  # fmt: skip

    def _import(self, kind: str) -> str:
        context = self.folder / f"base-{kind}"
        context.mkdir()
        shutil.copy(base(kind), context / "base.tar")
        (context / "Containerfile").write_text("FROM scratch\nADD base.tar /\n")
        name = f"localhost/base-{kind}:test"
        self.buildah("bud", "--isolation", "chroot", "--tag", name, str(context))
        return name

    def _index(self) -> list[str]:
        """Return the options that pass the package index of this machine on, as pip finds it here."""
        listed = run(sys.executable, "-m", "pip", "config", "list")
        settings = {}
        for line in listed.splitlines():
            key, _, value = line.partition("=")
            settings[key.rpartition(".")[2]] = value.strip("'\"")
        config = ConfigParser(interpolation=None)
        config["global"] = {key: value for key, value in settings.items() if key in KEPT}
        words = []
        if authority := settings.get("cert") or os.environ.get("REQUESTS_CA_BUNDLE"):
            config["global"]["cert"] = CA_IN_IMAGE
            words += ["--secret", f"id=ca.pem,src={authority}"]
        with (self.folder / "pip.conf").open("w") as file:
            config.write(file)
        return [*words, "--secret", f"id=pip.conf,src={self.folder / 'pip.conf'}"]

    def config(self) -> Mapping[str, Any]:
        """Return the configuration of the image: User, Env, Entrypoint."""
        inspected = json.loads(self.buildah("inspect", "--type", "image", IMAGE))
        config: Mapping[str, Any] = inspected["OCIv1"]["config"]
        return config

    def sizes_mib(self, root: Path) -> dict[str, float]:
        """Return the bytes of the root file system and of the proxy in it, in MiB."""
        folders = {"image": root, "of it /opt/kafka-share-proxy": root / "opt" / "kafka-share-proxy"}
        return {name: int(run("du", "-sk", str(path)).split()[0]) / 1024 for name, path in folders.items()}

    @contextmanager
    def mounted(self) -> Iterator[Path]:
        """Mount the root file system of a container of the image."""
        container = self.buildah("from", IMAGE).strip()
        try:
            yield Path(self.buildah("mount", container).strip())
        finally:
            self.buildah("rm", container)


def in_root(root: Path, config: Mapping[str, Any], mounts: Mapping[str, Path], arguments: Sequence[str]) -> list[str]:
    """Return the command that runs the image's entry point in a root file system that is read-only.

    `mounts`: folders of this machine by their path in the image.
    """
    pairs = []
    for target, source in mounts.items():
        (root / target.lstrip("/")).mkdir(parents=True, exist_ok=True)
        pairs += [str(source), target]
    environment = [f"USERSPEC={config['User']}", "unshare", "--mount", "sh", "-c", SANDBOX, "sh", str(root), *pairs]
    return ["env", *environment, "--", *config["Env"], *config["Entrypoint"], *arguments]
