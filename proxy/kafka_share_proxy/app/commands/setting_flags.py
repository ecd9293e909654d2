"""Flags of every command that reads settings: the brokers' addresses, TLS and identity, --config, and --set."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from kafka_share_proxy.feature.errors import ConfigError

if TYPE_CHECKING:
    from kafka_share_proxy.app.settings.config import Config

Command = Callable[..., None]

_BROKER_FLAGS: dict[str, tuple[str, Any]] = {
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
_SERVING_FLAGS: dict[str, tuple[str, Any]] = {
    "listen": (
        "listen",
        typer.Option(metavar="HOST:PORT", help="Where clients bootstrap; brokers get the ports after it."),
    ),
    "advertise": (
        "advertise",
        typer.Option(metavar="HOST", help="The host that clients dial, if not that of --listen."),
    ),
    "admin": (
        "admin",
        typer.Option(metavar="HOST:PORT", help="Serve /livez, /readyz, /metrics and /groups here."),
    ),
    "log_format": ("log_format", typer.Option(metavar="console|json", help="Format of log lines.")),
}
"""Flags of `serve` and `check` in addition. They are the same, so that what was checked is what is served."""
_SOURCES: dict[str, Any] = {
    "config": Annotated[str | None, typer.Option("--config", metavar="FILE", help="Settings in YAML.")],
    "assignments": Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any other setting by its key (log_level=debug); may be repeated."
        ),
    ],
}
_UPSTREAM = typer.Option(
    "--upstream", metavar="HOST:PORT,...", help="The brokers of the proxy that --bootstrap names, to store there."
)
"""Option for the brokers in a command whose own `--bootstrap` is the Kafka that it reads."""
_SWITCH = "tls"
"""The only flag without a value."""


@dataclass(frozen=True, slots=True)
class SettingFlags:
    """The settings that the flags of one command name, and its settings file."""

    flags: dict[str, object]
    """Dotted setting -> value of its flag; None if the flag is absent."""
    assignments: tuple[str, ...]
    """Texts of --set."""
    file: str | None

    def load(self, *, listens: bool = False) -> Config:
        """Read all sources of settings. Raises ConfigError. `listens`: see `config_loading.load`."""
        from kafka_share_proxy.app.settings import config_loading

        values = dict(self.flags)
        for assignment in self.assignments:
            key, equals, value = assignment.partition("=")
            if not equals or not key.strip():
                raise ConfigError(f"--set {assignment}: write KEY=VALUE, for example --set log_level=debug")
            values[key.strip()] = value
        return config_loading.load(values, path=self.file, listens=listens)


def reads_settings(command: Command) -> Command:
    """Add these flags to a command, which receives them as its keyword `settings`, of type `SettingFlags`.

    `--bootstrap` is the Kafka that a command connects to. In a command that declares `bootstrap` itself, the
    brokers are `--upstream` instead.
    """
    return _with_flags(command, _BROKER_FLAGS)


def serves_settings(command: Command) -> Command:
    """Add the flags of `reads_settings`, and those for listeners and logs."""
    return _with_flags(command, _BROKER_FLAGS | _SERVING_FLAGS)


def _with_flags(command: Command, flags: dict[str, tuple[str, Any]]) -> Command:
    hints = get_type_hints(command, include_extras=True)
    own = [each for each in inspect.signature(command).parameters.values() if each.name != "settings"]
    if any(each.name == "bootstrap" for each in own):
        flags = dict(flags)
        flags = {"upstream": (flags.pop("bootstrap")[0], _UPSTREAM)} | flags

    @functools.wraps(command)
    def with_flags(**arguments: Any) -> None:
        values = {key: arguments.pop(name) for name, (key, _) in flags.items()}
        assignments, file = tuple(arguments.pop("assignments") or ()), arguments.pop("config")
        command(**arguments, settings=SettingFlags(values, assignments, file))

    parameters = [
        *(_parameter(name, _annotation(name, option)) for name, (_, option) in flags.items()),
        *(_parameter(each.name, hints[each.name], each.default) for each in own),
        *(_parameter(name, annotation) for name, annotation in _SOURCES.items()),
    ]
    with_flags.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    with_flags.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_flags


def _parameter(name: str, annotation: Any, default: object = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _annotation(name: str, option: Any) -> Any:
    return Annotated[bool | None, option] if name == _SWITCH else Annotated[str | None, option]
