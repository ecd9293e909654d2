"""Command `reload`: let a running proxy apply what is written in its settings and TLS files."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_share_proxy.app.commands.groups_command import fetch
from kafka_share_proxy.app.commands.terminal import printable
from kafka_share_proxy.wire.values import Address

UPGRADE_S = 90.0
"""Seconds that new workers may take. The supervisor gives up after 60."""


def upgrade(admin: Address) -> str:
    """Return a text about the new workers. Raises NoResponse, with the reason if those before them continue."""
    changed = fetch(admin, "/upgrade", "POST", timeout_s=UPGRADE_S)["changed"]
    text = "new workers of the installed version serve; those before them end once their connections are closed"
    return printable(f"{text}; changed: {_names(changed)}")


def reload(admin: Address) -> str:
    """Return a text about what changed. Raises NoResponse, with the mistakes if the proxy refused."""
    result = fetch(admin, "/reload", "POST", timeout_s=UPGRADE_S)
    lines = [
        f"changed: {_names(result['changed'])}; certificates and authorities were read again",
        *(f"needs a restart: {name}" for name in result["needs_restart"]),
    ]
    return "\n".join(map(printable, lines))


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "no setting"
