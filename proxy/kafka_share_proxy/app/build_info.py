"""Version, commit and kernels of this installation (app/README.md rule 17)."""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from kafka_share_proxy.app import installed
from kafka_share_proxy.wire import kernels

PACKAGE = Path(__file__).resolve().parents[1]
RECORDED = "COMMIT"
"""File of a built package: its commit and the time of that commit (deploy/release/build_backend.py)."""
GIT_S = 10
COMMIT_CHARACTERS = 12
KERNEL_USERS = (
    "kafka_share_proxy.wire.records.batches",
    "kafka_share_proxy.wire.codec.commit_frames",
    "kafka_share_proxy.commits.kernel.text_commits",
    "kafka_share_proxy.sharegroups.kernel.key_table",
    "kafka_share_proxy.audit.event_log",
    "kafka_share_proxy.loop.promise",
    "kafka_share_proxy.forwarding.walk.pump",
    "kafka_share_proxy.forwarding.observed.forwarded_shares",
    "kafka_share_proxy.views.kernel.slicing",
)
"""Modules that, together, load every kernel."""


def version() -> str:
    """Return the version of the installed package."""
    return installed.version(installed.DISTRIBUTION) or "(run from a checkout)"


def commit() -> str:
    """Return the commit, with `+changes` if files of the checkout differ from it. Empty if unknown."""
    recorded = PACKAGE / RECORDED
    if recorded.is_file():
        full, plus, changes = recorded.read_text().split()[0].partition("+")
        return full[:COMMIT_CHARACTERS] + plus + changes
    checkout = PACKAGE.parents[1]
    if not (checkout / "pyproject.toml").is_file() or not (checkout / ".git").exists():
        return ""
    revision = _git(checkout, "rev-parse", f"--short={COMMIT_CHARACTERS}", "HEAD")
    changed = revision and _git(checkout, "status", "--porcelain", "--untracked-files=no")
    return f"{revision}+changes" if changed else revision


def _git(checkout: Path, *words: str) -> str:
    """Return the output, or an empty text if git fails."""
    command = ["git", "-C", str(checkout), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_S, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def lines() -> Iterator[str]:
    """Yield the text of `--version`: one line, and one for each reason why kernels are in Python."""
    for name in KERNEL_USERS:
        importlib.import_module(name)
    chosen = kernels.chosen()
    in_python = sum(bool(reason) for reason in chosen.values())
    where = "in C" if not in_python else f"{len(chosen) - in_python} in C and {in_python} in Python"
    yield f"{installed.DISTRIBUTION} {version()}, commit {commit() or 'unknown'}, kernels {where}"
    for reason, names in fallbacks(chosen).items():
        yield f"in Python: {', '.join(names)}: {reason}"


def fallbacks(chosen: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the kernels that are replaced by their Python fallbacks, by reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in sorted(chosen.items()):
        if reason:
            by_reason.setdefault(reason, []).append(name.rpartition("._")[2])
    return by_reason
