"""Programs for the tests of charts and manifests: Helm, helm-unittest, kubectl, and the control plane of Kubernetes.

    python -m tests.support.kubernetes_tools [NAME ...]     # build them with Go into the user's cache

On PATH, or else built from the Go modules that tests/deploy/kubernetes_tools/go.mod pins.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka.jars import cache_folder, exclusive

MODULE = Path(__file__).resolve().parents[1] / "deploy" / "kubernetes_tools"
PACKAGES = {
    "helm": "helm.sh/helm/v3/cmd/helm",
    "helm-unittest": "github.com/helm-unittest/helm-unittest/cmd/helm-unittest",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
}
BUILD_S = 1800


def installed(name: str) -> Path | None:
    """Return the path of a program. None if it is neither on PATH nor in the cache."""
    on_path, cached = shutil.which(name), _folder() / name
    if on_path is not None:
        return Path(on_path)
    return cached if cached.exists() else None


def need(name: str) -> Path:
    """Return the path of a program, or skip the test."""
    path = installed(name)
    if path is None:
        pytest.skip(f"no {name} on PATH or in the cache: python -m tests.support.kubernetes_tools {name}")
    return path


def need_built(name: str) -> Path:
    """Return the path of a program, built if Go is there. Otherwise skip the test."""
    if installed(name) is None and shutil.which("go") is not None:
        build(name)
    return need(name)


def build(name: str) -> None:
    """Build a program into the cache. Raises subprocess.CalledProcessError."""
    folder = _folder()
    with exclusive(folder):
        if not (folder / name).exists():
            partial = folder / f"{name}.partial"
            command = [
                "go",
                "build",
                "-mod=readonly",
                "-ldflags",
                " ".join(_flags()),
                "-o",
                str(partial),
                PACKAGES[name],
            ]
            subprocess.run(command, cwd=MODULE, timeout=BUILD_S, check=True)
            partial.rename(folder / name)


def kubernetes_version() -> str:
    """Return the release of the control plane."""
    (version,) = re.findall(r"(?m)^\tk8s\.io/kubernetes v(\S+)", (MODULE / "go.mod").read_text(encoding="utf-8"))
    return str(version)


def _folder() -> Path:
    pinned = b"".join((MODULE / name).read_bytes() for name in ("go.mod", "go.sum"))
    return cache_folder().parent / "kubernetes" / hashlib.sha256(pinned).hexdigest()[:16]


def _flags() -> list[str]:
    """Return options of the linker: the versions that released programs report, and no debugging symbols."""
    version = kubernetes_version()
    major, minor, _ = version.split(".")
    base = "k8s.io/component-base/version"
    values = {f"{base}.gitVersion": f"v{version}", f"{base}.gitMajor": major, f"{base}.gitMinor": minor}
    for package in ("pkg/lint/rules", "pkg/chartutil"):
        values[f"helm.sh/helm/v3/{package}.k8sVersionMajor"] = major
        values[f"helm.sh/helm/v3/{package}.k8sVersionMinor"] = minor
    return ["-s", "-w", *(f"-X {variable}={value}" for variable, value in values.items())]


def main() -> None:
    """Build the named programs, or all of them."""
    for name in sys.argv[1:] or PACKAGES:
        if installed(name) is None:
            build(name)
        print(installed(name), flush=True)


if __name__ == "__main__":
    if shutil.which("go") is None:
        print(f"error: no Go on PATH, with which {os.path.relpath(MODULE)} is built", file=sys.stderr)
        sys.exit(1)
    main()
