"""Settings `limits.*`, whose names, types and defaults are those of `forwarding.limits.Limits`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, get_args, get_type_hints

from kafka_share_proxy.app.settings.config_sources import Key
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.forwarding.limits import Limits


def parse(written: Mapping[str, Any]) -> Limits:
    """Apply the defaults to `limits.*`. Raises ConfigError with every mistake."""
    problems = list(mistakes(written))
    if problems:
        raise ConfigError("\n".join(f"{'.'.join(key)}: {text}" for key, text in problems))
    kinds = _kinds()
    return Limits(**{name: kinds[name](value) for name, value in written.items()})


def mistakes(written: Mapping[str, Any]) -> Iterator[tuple[Key, str]]:
    """Yield the path and problem of every unknown limit and every invalid value."""
    kinds = _kinds()
    names = [f.name for f in fields(Limits)]
    for name, value in written.items():
        if name not in names:
            import difflib  # needed after a mistake only, and an idle proxy should be small

            near = difflib.get_close_matches(name, names, n=1)
            yield ("limits", name), "there is no such limit" + (f"; did you mean limits.{near[0]}?" if near else "")
        elif not _positive(value, kinds[name]):
            accepted = "a whole number" if kinds[name] is int else "a number"
            yield ("limits", name), f"must be {accepted} above 0, not {value!r}"


def _kinds() -> dict[str, Any]:
    """Return the type of each limit. An optional limit has the type of its values."""
    hints = get_type_hints(Limits)
    return {name: hint if isinstance(hint, type) else get_args(hint)[0] for name, hint in hints.items()}


def _positive(value: object, kind: type[int] | type[float]) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    try:
        number = kind(value)
    except (ValueError, OverflowError):
        return False
    return 0 < number < float("inf") and (isinstance(value, str) or number == value)
