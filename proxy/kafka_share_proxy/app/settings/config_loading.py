"""Settings as they are read: flags, environment and a YAML file set the same keys; the first that names a key wins.

All mistakes are reported together, each with its path, its origin, and what to do (`ConfigError`). How: what was
written is merged and validated; what is wrong is noted and taken out, so that the checks between settings see the rest
as well. Nothing secret is ever part of a message.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from kafka_share_proxy.app.settings import config_consistency
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.settings.config_sources import CONFIG_VARIABLE, Key, Sources
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.feature.settings import Section


def load(
    flags: Mapping[str, object],
    environment: Mapping[str, str] = os.environ,
    path: str | None = None,
    *,
    listens: bool = True,
) -> Config:
    """Read all sources. Raises ConfigError, which names all mistakes.

    `flags` has dotted keys (`upstream.bootstrap`), None means not given. `path` is the YAML file; unset: KSP_CONFIG.
    Without `listens` no client bootstraps from here, and the address to do so may be missing.
    """
    sources = Sources(_dotted_names())
    sources.add_file(path or environment.get(CONFIG_VARIABLE))
    sources.add_environment(environment)
    sources.add_flags(flags)
    config = _validated(sources)
    # The content of an unreadable file is unknown: missing settings may be in it.
    for key, text in () if sources.unread else config_consistency.mistakes(config):
        if listens or config.listen is not None or key != ("listen",):
            sources.mistake(key, text)
    if sources.mistakes:
        raise ConfigError(sources.report())
    return config


def _dotted_names() -> dict[Key, Collection[str]]:
    """Return the paths below which names have dots, with the known names."""
    sections = {name: field.annotation for name, field in Config.model_fields.items()}
    return {
        (section, name): names
        for section, kind in sections.items()
        if isinstance(kind, type) and issubclass(kind, Section)
        for name, names in kind.dotted_names.items()
    }


def _validated(sources: Sources) -> Config:
    """Return the settings without the values that are invalid by themselves, which are noted as mistakes."""
    while True:  # each round removes at least one value of a finite number
        try:
            return Config.model_validate(sources.data)
        except ValidationError as error:
            for details in error.errors(include_url=False):
                key = tuple(str(part) for part in details["loc"])
                sources.mistake(key, _advice(key, details))
                # A location may name a part of a value that is no map (an item of a text, for example).
                any(sources.drop(key[:length]) for length in range(len(key), 0, -1))


def _advice(key: Key, details: ErrorDetails) -> str:
    if details["type"] == "extra_forbidden":
        return f"there is no such setting; {_suggestion(key)}"
    text = details["msg"].removeprefix("Value error, ").removeprefix("Input ")
    # A value that is wrong may be a secret that went to the wrong place, but only below sasl is that likely.
    if "sasl" in key or isinstance(details["input"], dict):
        return text
    return f"{text}, not {details['input']!r}" if text.startswith("should") else f"{text} (it is {details['input']!r})"


def _suggestion(key: Key) -> str:
    """Return the setting that was probably meant, or else the purpose and the settings of the section."""
    import difflib  # needed after a mistake only, and an idle proxy should be small

    section = _section(key[:-1])
    near = difflib.get_close_matches(key[-1], section.model_fields, n=1)
    if near:
        return f"did you mean {'.'.join((*key[:-1], near[0]))}?"
    names = ", ".join(section.model_fields)
    if not key[:-1]:
        return f"settings are {names}"
    purpose = (section.__doc__ or "").partition("\n")[0].rstrip(".")
    return f"{'.'.join(key[:-1])} ({purpose}) has {names}"


def _section(path: Key) -> type[BaseModel]:
    model: Any = Config
    for part in path:
        model = get_args(model)[0] if part.isdigit() else model.model_fields[part].annotation
    section: type[BaseModel] = model
    return section
