"""Settings as values of JSON, as a supervisor passes them to its workers: with defaults omitted, and with secrets."""

from __future__ import annotations

import json

from pydantic import SecretStr, ValidationError

from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.feature.errors import ConfigError


def encode(config: Config) -> str:
    """Return JSON with secrets, which must not be logged or be part of a command line."""
    return json.dumps(config.model_dump(exclude_defaults=True), default=_plain)


def decode(text: str) -> Config:
    """Return the settings. Raises ConfigError if another version of the program has written them."""
    try:
        return Config.model_validate(json.loads(text))
    except ValidationError as error:
        names = ", ".join(".".join(map(str, each["loc"])) for each in error.errors(include_input=False))
        raise ConfigError(f"the supervisor has passed settings that this version does not know: {names}") from None


def _plain(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)
