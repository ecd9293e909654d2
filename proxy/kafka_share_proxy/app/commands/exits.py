"""Ends of commands: exit statuses, and one line on stderr about an error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn, TypeVar

import typer

from kafka_share_proxy.app.commands.terminal import printable_lines
from kafka_share_proxy.app.installed import DISTRIBUTION
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.wire.errors import ProxyError

T = TypeVar("T")

FAILED, MISUSED, INTERRUPTED = 1, 2, 130
"""Exit statuses: the command did not work; the command or its settings are wrong; Ctrl-C."""


def fail(text: str, status: int) -> NoReturn:
    """End the command with this text on stderr."""
    print(printable_lines(f"{DISTRIBUTION}: {text}"), file=sys.stderr)  # noqa: T201
    raise typer.Exit(status)


def outcome(call: Callable[[], T], *misuses: type[Exception]) -> T:
    """Return the result of a call. An error ends the command with its text and status.

    Args:
        misuses: errors that mean, like ConfigError, that the command itself is wrong.
    """
    misused: tuple[type[Exception], ...] = (ConfigError, *misuses)
    try:
        return call()
    except misused as error:
        fail(str(error), MISUSED)
    except ProxyError as error:
        fail(str(error), FAILED)
    except OSError as error:
        fail(error.strerror or str(error), FAILED)
