"""Command `reload`: let a running proxy apply what is written in its settings and TLS files."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_share_proxy.app.commands.groups_command import fetch
from kafka_share_proxy.app.commands.terminal import printable
from kafka_share_proxy.wire.values import Address


def reload(admin: Address) -> str:
    """Return a text about what changed. Raises NoResponse, with the mistakes if the proxy refused."""
    result = fetch(admin, "/reload", "POST")
    lines = [
        f"changed: {_names(result['changed'])}; certificates and authorities were read again",
        *(f"needs a restart: {name}" for name in result["needs_restart"]),
    ]
    return "\n".join(map(printable, lines))


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "no setting"
