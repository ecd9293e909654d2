"""Settings that a reload changes in a running proxy. All others need a restart (docs/operate.md)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import trio

from kafka_share_proxy.app.observing import observe
from kafka_share_proxy.app.settings import tls_contexts
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.settings.tls_contexts import TlsContexts
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.feature.settings import Section
from kafka_share_proxy.loop.interfaces import Notes

LIVE_LIMITS = (
    "stalled_client_s",
    "gathering_s",
    "idle_client_s",
    "connection_age_s",
    "connections_per_address",
    "served_request_elements",
    "local_answer_bytes",
)
"""Limits that the data plane reads when it applies them."""
LIVE = frozenset(
    {
        "log_level",
        "drain_s",
        "vanished_broker_grace_s",
        "admin_changes",
        "upstream.bootstrap",
        "upstream.metadata_interval_s",
        "trace.seconds",
        "trace.seconds_max",
        "trace.lines",
        "trace.bytes",
        *(f"limits.{name}" for name in LIVE_LIMITS),
    }
)
TLS_SECTIONS = {"client_tls": "on", "upstream.tls": "on", "cluster.peer.tls": "is_set"}
"""Sections with TLS files, and the property that is True if the section is used."""
TLS_FILES = ("cert_file", "key_file", "client_ca_file", "ca_file")
SECRET_FILES = ("upstream.sasl.password_file",)
"""Files that are read again at each login."""


class Reloaded(NamedTuple):
    """Result of a reload."""

    changed: tuple[str, ...] = ()
    """Settings that have new values now."""
    needs_restart: tuple[str, ...] = ()
    """Settings with new values that only a restart applies."""


ApplyReload = Callable[[Config, Sequence[str], TlsContexts], Awaitable[None]]
"""Function that applies settings, given the names of those with new values. Raises ConfigError."""


async def reload(
    old: Config,
    read: Callable[[], Config],
    takes_effect: Callable[[str, Config], bool],
    apply: ApplyReload,
    notes: Notes,
    reason: str,
) -> Reloaded:
    """Read all settings and TLS files, apply the settings that take effect without a restart, and log the result.

    Raises:
        ConfigError: a setting or a file is invalid, or was not applied. This is logged.
    """
    try:
        new, tls = await trio.to_thread.run_sync(_read_with_files, read)
        names = changed(old, new)
        applied = tuple(name for name in names if takes_effect(name, new))
        await apply(with_values(old, new, applied), applied, tls)
    except ConfigError as error:
        notes(observe.RELOAD_REFUSED, reason=str(error), requested_by=reason)
        raise
    needs_restart = tuple(name for name in names if name not in applied)
    notes(observe.RELOADED, requested_by=reason, changed=", ".join(applied))
    if needs_restart:
        notes(observe.RELOAD_NEEDS_RESTART, settings=", ".join(needs_restart))
    return Reloaded(applied, needs_restart)


def _read_with_files(read: Callable[[], Config]) -> tuple[Config, TlsContexts]:
    config = read()
    return config, tls_contexts.contexts(config)


def changed(old: Config, new: Config) -> list[str]:
    """Return the dotted names of the settings that differ."""
    return list(_changed(old, new, ""))


def _changed(old: Section, new: Section, prefix: str) -> Iterator[str]:
    for name in type(old).model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if isinstance(before, Section):
            yield from _changed(before, after, f"{prefix}{name}.")
        elif name == "limits" and not prefix:
            yield from (f"limits.{key}" for key in sorted({*before, *after}) if before.get(key) != after.get(key))
        elif before != after:
            yield prefix + name


def is_live(name: str, old: Config, new: Config) -> bool:
    """Return True if a change of this setting takes effect in a running proxy."""
    section, _, key = name.rpartition(".")
    if section in TLS_SECTIONS and key in TLS_FILES:
        used = f"{section}.{TLS_SECTIONS[section]}"
        return bool(value_of(old, used) == value_of(new, used))
    return name in LIVE or name in SECRET_FILES


def with_values(old: Config, new: Config, names: Iterable[str]) -> Config:
    """Return the old settings with the new values of these names."""
    return reduce(lambda config, name: _with_value(config, new, name.split(".")), names, old)


def _with_value(old: Any, new: Any, path: list[str]) -> Any:
    if isinstance(old, dict):
        other_settings = {key: value for key, value in old.items() if key != path[0]}
        return other_settings | {key: value for key, value in new.items() if key == path[0]}
    value = getattr(new, path[0])
    if path[1:]:
        value = _with_value(getattr(old, path[0]), value, path[1:])
    copy = old.model_copy(update={path[0]: value})
    copy.__dict__.pop("named_limits", None)  # computed from the old limits, and copied with the rest
    return copy


def watched_files(config: Config) -> list[str]:
    """Return the files whose changes cause a reload."""
    names = [f"{section}.{key}" for section in TLS_SECTIONS for key in TLS_FILES]
    return [file for name in names if (file := value_of(config, name, None)) is not None]


def value_of(config: Config, name: str, *default: Any) -> Any:
    """Return the value of a dotted name."""
    *sections, key = name.split(".")
    return getattr(reduce(getattr, sections, config), key, *default)
