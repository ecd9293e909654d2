"""Flags of every command that connects to the brokers: addresses, TLS, and identity."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

Flags = dict[str, object]
"""Dotted setting -> value of its flag; None if the flag is absent."""

_FLAGS: dict[str, tuple[str, Any]] = {
    "bootstrap": (
        "upstream.bootstrap",
        typer.Option(
            "--bootstrap",
            "--bootstrap-server",
            "--upstream",
            metavar="HOST:PORT,...",
            help="The cluster's bootstrap servers (upstream.bootstrap).",
        ),
    ),
    "tls": (
        "upstream.tls.enabled",
        typer.Option("--tls/--no-tls", help="Dial the brokers with TLS (upstream.tls.enabled).", show_default=False),
    ),
    "tls_ca": (
        "upstream.tls.ca_file",
        typer.Option(
            metavar="FILE", help="The authorities that may sign the brokers' certificates (upstream.tls.ca_file)."
        ),
    ),
    "sasl_mechanism": (
        "upstream.sasl.mechanism",
        typer.Option(metavar="NAME", help="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 (upstream.sasl.mechanism)."),
    ),
    "sasl_username": (
        "upstream.sasl.username",
        typer.Option(metavar="NAME", help="The principal to authenticate as (upstream.sasl.username)."),
    ),
    "sasl_password_file": (
        "upstream.sasl.password_file",
        typer.Option(metavar="FILE", help="A file that holds the password (upstream.sasl.password_file)."),
    ),
}
_AFTER = typer.Option(
    "--upstream", metavar="HOST:PORT,...", help="The brokers of the proxy that --bootstrap names, to store there."
)
"""Option for the brokers in a command whose own `--bootstrap` is the Kafka that it reads."""
_SWITCH = "tls"
"""The only flag without a value."""


def dials_brokers(command: Callable[..., None]) -> Callable[..., None]:
    """Add these flags to a command, which receives them as its keyword `brokers`, of type `Flags`.

    `--bootstrap` is the Kafka that a command connects to. In a command that declares `bootstrap` itself, the
    brokers are `--upstream` instead.
    """
    hints = get_type_hints(command, include_extras=True)
    own = [each for each in inspect.signature(command).parameters.values() if each.name != "brokers"]
    flags = dict(_FLAGS)
    if any(each.name == "bootstrap" for each in own):
        flags = {"upstream": (flags.pop("bootstrap")[0], _AFTER)} | flags

    @functools.wraps(command)
    def with_flags(**arguments: Any) -> None:
        values: Flags = {key: arguments.pop(name) for name, (key, _) in flags.items()}
        command(**arguments, brokers=values)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(name, keyword, default=None, annotation=_annotation(name, option))
        for name, (_, option) in flags.items()
    ]
    parameters += [each.replace(annotation=hints[each.name], kind=keyword) for each in own]
    with_flags.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    with_flags.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_flags


def _annotation(name: str, option: Any) -> Any:
    return Annotated[bool | None, option] if name == _SWITCH else Annotated[str | None, option]
