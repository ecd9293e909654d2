"""Flags of every command that dials the brokers: where they are, TLS, and the identity it goes there with."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

Flags = dict[str, object]
"""Dotted setting -> what the flag gave; None: it was not given."""

_FLAGS: dict[str, tuple[str, Any]] = {
    "upstream": (
        "upstream.bootstrap",
        typer.Option(metavar="HOST:PORT,...", help="The cluster's bootstrap servers (upstream.bootstrap)."),
    ),
    "tls": (
        "upstream.tls.enabled",
        typer.Option("--tls/--no-tls", help="Dial the brokers with TLS (upstream.tls.enabled).", show_default=False),
    ),
    "tls_ca": (
        "upstream.tls.ca_file",
        typer.Option(metavar="FILE", help="Who may sign the brokers' certificates (upstream.tls.ca_file)."),
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
"""Parameter -> the setting it stands for, and its option."""
_SWITCH = "tls"
"""The one of them that takes no value."""


def dials_brokers(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these flags; it gets them as its keyword `brokers`, of type `Flags`."""

    @functools.wraps(command)
    def with_flags(**given: Any) -> None:
        flags: Flags = {key: given.pop(name) for name, (key, _) in _FLAGS.items()}
        command(**given, brokers=flags)

    hints = get_type_hints(command, include_extras=True)
    own = [each for each in inspect.signature(command).parameters.values() if each.name != "brokers"]
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, keyword, default=None, annotation=_kind(name)) for name in _FLAGS]
    parameters += [each.replace(annotation=hints[each.name], kind=keyword) for each in own]
    with_flags.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer goes by
    with_flags.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_flags


def _kind(name: str) -> Any:
    option = _FLAGS[name][1]
    return Annotated[bool | None, option] if name == _SWITCH else Annotated[str | None, option]
