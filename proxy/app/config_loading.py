"""Settings as they are read: flags, environment and a YAML file set the same keys; the first that names a key wins.

Every mistake is reported at once, each with its path, where it was written, and what to do (`ConfigError`). How: what
was written is merged and validated; what is wrong is noted and taken out, so that the checks between settings see the
rest as well. Nothing secret is ever part of a message.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from proxy.app import config_consistency
from proxy.app.config import Config
from proxy.app.config_sources import CONFIG_VARIABLE, Key, Sources
from proxy.sharegroups.model.settings import BrokerShareLimits
from proxy.wire.errors import ConfigError


def load(
    flags: Mapping[str, object],
    environment: Mapping[str, str] = os.environ,
    path: str | None = None,
    *,
    listens: bool = True,
) -> Config:
    """Read all sources; ConfigError names every mistake at once.

    `flags` has dotted keys (`upstream.bootstrap`), None means not given. `path` is the YAML file; unset: KSP_CONFIG.
    Without `listens` nobody bootstraps from here, and the address to do so may be missing.
    """
    sources = Sources(f.name.replace("_", ".") for f in fields(BrokerShareLimits))
    sources.add_file(path or environment.get(CONFIG_VARIABLE))
    sources.add_environment(environment)
    sources.add_flags(flags)
    config = _validated(sources)
    # Of a file that cannot be read nobody knows what it says: what is missing may be in it.
    for key, text in () if sources.unread else config_consistency.mistakes(config):
        if listens or config.listen is not None or key != ("listen",):
            sources.mistake(key, text)
    if sources.mistakes:
        raise ConfigError(sources.report())
    return config


def _validated(sources: Sources) -> Config:
    """The model of what is right by itself; what is not is noted, and counts as not written."""
    while True:  # each round takes at least one value out of a finite number
        try:
            return Config.model_validate(sources.data)
        except ValidationError as error:
            for details in error.errors(include_url=False):
                key = tuple(str(part) for part in details["loc"])
                sources.mistake(key, _advice(key, details))
                sources.drop(key)


def _advice(key: Key, details: ErrorDetails) -> str:
    if details["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key[-1], _names(key[:-1]), n=1)
        return "there is no such setting" + (f"; did you mean {'.'.join((*key[:-1], near[0]))}?" if near else "")
    text = details["msg"].removeprefix("Value error, ").removeprefix("Input ")
    # A value that is wrong may be a secret that went to the wrong place, but only below sasl is that likely.
    if "sasl" in key or isinstance(details["input"], dict):
        return text
    return f"{text}, not {details['input']!r}" if text.startswith("should") else f"{text} (it is {details['input']!r})"


def _names(section: Key) -> list[str]:
    model: Any = Config
    for part in section:
        model = model.model_fields[part].annotation
    return list(model.model_fields)
