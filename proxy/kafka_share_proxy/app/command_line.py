"""Start of `kafka-share-proxy`, with as little in memory as possible, because an idle proxy should be small."""

from __future__ import annotations

import os

from kafka_share_proxy.app.deferred_modules import PYDANTIC, TYPER, deferred

TIME_ZONES = "/usr/share/zoneinfo:/usr/lib/zoneinfo:/usr/share/lib/zoneinfo:/etc/zoneinfo"
"""Folders of time zones, as in Python's configure. Without them zoneinfo, which the library of settings loads, would
read all variables of Python's build (0.2 MiB).
"""


def main() -> None:
    """Run the command."""
    os.environ.setdefault("PYTHONTZPATH", TIME_ZONES)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it would look for some in all distributions
    _load_typer()
    _load_pydantic()
    from kafka_share_proxy.app import cli

    cli.main()


def _load_typer() -> None:
    with deferred(TYPER):
        import typer  # noqa: F401 - for its modules


def _load_pydantic() -> None:
    with deferred(PYDANTIC):
        from pydantic import TypeAdapter

        TypeAdapter(bool)  # the first one loads the module for plugins
